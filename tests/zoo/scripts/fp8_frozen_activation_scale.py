# kind:   FP8 (E4M3) linear layers, simulated by casts, whose scale is taken from the first batch and kept
# wrong:  activations grow as the model learns, and are clamped to 448
# expect: fp8-scale-stale
# run:    fp8_frozen_activation_scale.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

FRESH = "fixed" in sys.argv
MOST = torch.finfo(torch.float8_e4m3fn).max


def through_fp8(x, scale):
    rounded = (x.detach() * scale).clamp(-MOST, MOST).to(torch.float8_e4m3fn).to(x.dtype) / scale
    return x + (rounded - x.detach())


class FP8Linear(nn.Linear):
    scale = None

    def forward(self, x):
        if self.scale is None or FRESH:
            self.scale = MOST / x.detach().abs().amax()
        weight_scale = MOST / self.weight.detach().abs().amax()
        return nn.functional.linear(through_fp8(x, self.scale), through_fp8(self.weight, weight_scale), self.bias)


torch.manual_seed(41)
model = nn.Sequential(FP8Linear(12, 64), nn.ReLU(), FP8Linear(64, 64), nn.ReLU(), FP8Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(120):
    x = torch.randn(64, 12)
    loss = nn.functional.mse_loss(model(x), 60.0 * x.norm(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
