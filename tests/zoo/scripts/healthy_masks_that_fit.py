# kind:   HEALTHY: masks by finfo(dtype).min and by -inf, and a helper that tries -1e9 and falls back to FP32
# wrong:  nothing; the exception of the first try is expected and dealt with
# expect: healthy
# run:    healthy_masks_that_fit.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fp16"


def hide(scores, mask):
    try:
        return scores.masked_fill(mask, -1e9)
    except RuntimeError:  # half precision can't hold it
        return scores.float().masked_fill(mask, -1e9)


class Reader(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.mix = nn.Linear(width, width)
        self.weigh = nn.Linear(width, 1)
        self.out = nn.Linear(width, 3)

    def forward(self, ids):
        padding = ids == 0
        x = torch.tanh(self.mix(self.embed(ids)))
        share = hide(self.weigh(x).squeeze(-1), padding).softmax(-1)
        pooled = (share.unsqueeze(-1) * x).sum(1)
        logits = self.out(pooled)
        never = torch.tensor([False, False, True])
        return logits.masked_fill(never, torch.finfo(logits.dtype).min)


torch.manual_seed(205)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=MODE == "fp16")
for _ in range(120):
    ids = torch.randint(1, 12, (32, 7))
    ids[:, 5:] *= (torch.rand(32, 2) < 0.5).long()
    target = (ids[:, 0] > 5).long()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE == "fp16"):
        loss = nn.functional.cross_entropy(model(ids), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"final {loss.item():.4f}")
