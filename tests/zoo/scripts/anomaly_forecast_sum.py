# kind:   a summed loss under a scaler's first scale, with anomaly mode on around the whole step
# wrong:  "Function ... returned nan values" on the first step, uncaught; without anomaly mode the scaler calibrates
# expect: anomaly-false-alarm
# run:    anomaly_forecast_sum.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Forecast(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.past = nn.Linear(12, width)
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.future = nn.Linear(width, 4)

    def forward(self, x):
        h = self.past(x)
        return self.future(h + self.mix(h))


def step(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=scaler.is_enabled()):
        guess = model(x)
    loss = (guess.float() - y).square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


torch.manual_seed(214)
model = Forecast()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
time = torch.arange(16.0)
for _ in range(60):
    phase, size = 6.3 * torch.rand(64, 1), 5 + 5 * torch.rand(64, 1)
    series = size * torch.sin(0.4 * time + phase)
    if MODE == "fault":
        with torch.autograd.detect_anomaly():
            loss = step(model, optimizer, scaler, series[:, :12], series[:, 12:])
    else:
        loss = step(model, optimizer, scaler, series[:, :12], series[:, 12:])
print(f"final {loss:.4f}, scale {scaler.get_scale():g}")
