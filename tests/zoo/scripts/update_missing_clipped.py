# kind:   GradScaler put into a loop with clipping, and its update() forgotten
# wrong:  the second iteration ends with "unscale_() is being called after step()", uncaught
# expect: scaler-update-missing
# run:    update_missing_clipped.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Mixer(nn.Module):
    def __init__(self, tokens=8, width=16):
        super().__init__()
        self.across = nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))
        self.within = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = x + self.across(x.transpose(1, 2)).transpose(1, 2)
        return self.out(self.within(x).mean(dim=1))


torch.manual_seed(405)
model = Mixer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0, enabled=MODE != "fp32")
for _ in range(40):
    x = torch.randn(32, 8, 16)
    target = (x[:, 0, 0] > 0).long()
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = nn.functional.cross_entropy(model(x), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    if MODE == "fixed":
        scaler.update()
    schedule.step()
print(f"final {loss.item():.4f}")
