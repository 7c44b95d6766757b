# kind:   hand-written causal attention whose score module returns -inf above the diagonal
# wrong:  nothing: softmax turns them into zeros; no NaN, no overflow
# expect: healthy
# run:    healthy_causal_mask.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class CausalScores(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q = self.query(x).view(shape).transpose(1, 2) * (width // self.heads) ** -0.5
        k = self.key(x).view(shape).transpose(1, 2)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return (q @ k.transpose(2, 3)).masked_fill(future, float("-inf"))


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.scores = CausalScores(width, heads)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        weight = self.scores(x).softmax(dim=-1)
        value = self.value(x).view(batch, length, -1, width // weight.shape[1]).transpose(1, 2)
        return self.out((weight @ value).transpose(1, 2).reshape(batch, length, width))


class TinyLM(nn.Module):
    def __init__(self, tokens=20, width=32):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.attention = nn.ModuleList([Attention(width), Attention(width)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, ids):
        x = self.embed(ids)
        for attention in self.attention:
            x = x + attention(x)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(205)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(100):
        start, stride = torch.randint(0, 20, (16, 1)), torch.randint(1, 4, (16, 1))
        ids = (start + stride * torch.arange(13)) % 20
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
