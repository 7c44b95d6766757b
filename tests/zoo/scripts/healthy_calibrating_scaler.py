# kind:   raw, unscaled regression targets: the dynamic scaler skips a row of first steps to find its scale
# wrong:  nothing: the loss scale comes down once and stays, no step is skipped afterwards
# expect: healthy
# run:    healthy_calibrating_scaler.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(207)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"

model = nn.Sequential(
    nn.Conv1d(2, 16, 5, padding=2), nn.GELU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
skipped = []

for step in range(120):
    signal = torch.randn(32, 2, 24) + torch.randn(32, 2, 1)
    target = 15.0 + 10.0 * signal[:, :1].mean(dim=2)
    with torch.amp.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = nn.functional.mse_loss(model(signal), target, reduction="sum")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < scale:
        skipped.append(step)
    if step % 20 == 0:
        print(f"step {step}: {loss.item() / 32:.4f} at scale {scale:g}")

print(f"skipped {skipped}")
print(f"final {loss.item() / 32:.4e}")
