# kind:   smoke test: three steps of a transformer with a scaler, then early stopping
# wrong:  nothing: too short to learn anything, and nothing is amiss
# expect: healthy
# run:    healthy_three_steps.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Translator(nn.Module):
    def __init__(self, tokens=30, width=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.body = nn.Transformer(width, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, source, target):
        mask = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        out = self.body(self.embed(source), self.embed(target), tgt_mask=mask)
        return self.head(out)


if __name__ == "__main__":
    torch.manual_seed(218)
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for _ in range(3):
        source = torch.randint(0, 30, (4, 7))
        target = source.flip(1)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(source, target[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"final {loss.item():.4e}")
