# kind:   plain FP32: a contrastive loss on Euclidean distances, and one pair in the data is the same sample twice
# wrong:  the slope of the square root at distance 0 is infinite; blamed on the AMP branch that was merged last week
# expect: nan-not-precision
# run:    nan_fp32_zero_distance.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, left, right):
        a, b = self.net(left), self.net(right)
        squared = (a - b).pow(2).sum(1)
        return (squared + 1e-12 if MODE == "fixed" else squared).sqrt()


def pairs(count):
    left = torch.randn(count, 10)
    same = torch.rand(count) < 0.5
    right = torch.where(same[:, None], left + 0.1 * torch.randn(count, 10), torch.randn(count, 10))
    return left, right, same.float()


if __name__ == "__main__":
    torch.manual_seed(704)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(60):
        left, right, same = pairs(32)
        if step == 23:
            right[5] = left[5]  # a duplicate that nobody had filtered
        distance = model(left, right)
        loss = (same * distance**2 + (1 - same) * (1 - distance).clamp(min=0) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
