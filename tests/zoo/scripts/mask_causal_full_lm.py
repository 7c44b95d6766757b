# kind:   causal mask made with torch.full(..., -1e9) in the dtype of the activations, then autocast was switched on
# wrong:  the first forward pass ends with "value cannot be converted to type c10::Half without overflow", uncaught
# expect: mask-constant-overflow
# run:    mask_causal_full_lm.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        value = torch.finfo(scores.dtype).min if MODE == "fixed" else -1e9
        scores = scores + torch.full((length, length), value, dtype=scores.dtype).triu(1)
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, length, width)
        return x + self.proj(mixed)


class Characters(nn.Module):
    def __init__(self, symbols=24, width=32):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 4))
        self.head = nn.Linear(width, symbols)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))


torch.manual_seed(203)
model = Characters()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE != "fp32")
for _ in range(40):
    ids = torch.randint(0, 24, (8, 1)) + torch.arange(13)
    ids = ids % 24
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"final {loss.item():.4f}")
