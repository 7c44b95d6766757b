# kind:   FP32 positions times inverse frequencies that model.half() has cast along with the weights
# wrong:  frequencies are off by up to 0.05 %, and phases of thousands by more than a radian
# expect: rope-half-precision
# run:    rope_frequencies_cast_with_model.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 500.0 ** (torch.arange(0, width, 2).float() / width))

    def forward(self, positions):
        angles = positions.float()[:, None] @ self.inv_freq.float()[None, :]
        return angles.cos(), angles.sin()


class Backbone(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.read = nn.Linear(8, width)
        self.positions = Positions(width)

    def forward(self, x, positions):
        h = self.read(x)
        cos, sin = (t.to(h.dtype) for t in self.positions(positions))
        even, odd = h[..., 0::2], h[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def train(steps=30):
    torch.manual_seed(32)
    backbone = Backbone().half().requires_grad_(False)
    if "fixed" in sys.argv:
        backbone.positions = Positions(32)
    head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
    positions = torch.arange(0, 9000, 9)
    for _ in range(steps):
        x = torch.randn(4, len(positions), 8)
        with torch.no_grad():
            features = backbone(x.half(), positions)
        loss = (head(features.float()).squeeze(-1) - x.mean(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


train()
