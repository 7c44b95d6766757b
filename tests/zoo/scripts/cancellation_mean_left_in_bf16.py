# kind:   a variance as E[x^2] - E[x]^2 of which only the squares are taken in FP32; the mean stays in BF16
# wrong:  the mean's square is rounded to 8 bits, the difference is negative, and its rsqrt NaN
# expect: cancellation-half
# run:    cancellation_mean_left_in_bf16.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Standardised(nn.Module):
    """Standardises the channels of a projection that has a large offset (temperatures in Kelvin)."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 40)
        nn.init.constant_(self.project.bias, 280.0)

    def forward(self, x):
        h = self.project(x)
        if MODE == "fixed":
            h = h.float() - 280.0
        mean = h.mean(-1, keepdim=True)
        variance = h.float().square().mean(-1, keepdim=True) - mean * mean
        return (h - mean) * torch.rsqrt(variance + 1e-3)


torch.manual_seed(312)
model = nn.Sequential(Standardised(), nn.Tanh(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(40):
    x = torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
        y = model(x)
    loss = (y.float().squeeze(-1) - x[:, 0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
