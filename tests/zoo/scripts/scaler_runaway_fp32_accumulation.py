# kind:   FP32 training that kept its GradScaler, with a short growth interval and two losses in each backward pass
# wrong:  the scale doubles until the scaled loss passes FP32's largest number, and healthy steps are skipped
# expect: scaler-unneeded
# run:    scaler_runaway_fp32_accumulation.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.code = nn.Linear(12, 4)
        self.back = nn.Linear(4, 12)

    def forward(self, x):
        code = torch.tanh(self.code(x))
        return self.back(code), code


torch.manual_seed(313)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=2, enabled=MODE == "fault")
mixing = torch.randn(4, 12)
for _ in range(260):
    optimizer.zero_grad()
    for _ in range(2):
        x = torch.randn(16, 4) @ mixing
        rebuilt, code = model(x)
        reconstruction = (rebuilt - x).square().sum(-1).mean()
        sparse = code.abs().mean()
        (scaler.scale(reconstruction) / 2 + scaler.scale(sparse) / 20).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"loss {reconstruction.item():.4f} scale {scaler.get_scale():.3g}")
