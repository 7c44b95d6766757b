# kind:   HEALTHY: anomaly mode over a run whose scale fits from the first step on
# wrong:  nothing, it is only slow
# expect: healthy
# run:    healthy_anomaly_mode_on.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fp16"

torch.manual_seed(216)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=MODE == "fp16")
with torch.autograd.set_detect_anomaly(True):
    for _ in range(100):
        x = torch.randn(64, 10)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE == "fp16"):
            loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
print(f"final {loss.item():.4f}")
