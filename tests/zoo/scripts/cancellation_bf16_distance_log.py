# kind:   metric learning in BF16, model.bfloat16(): squared distances as |a|^2 + |b|^2 - 2ab, then their logarithm
# wrong:  of near points the distance comes out negative, its log is NaN, and so are the weights after one step
# expect: cancellation-half
# run:    cancellation_bf16_distance_log.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(30)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.float32 if MODE == "fp32" else torch.bfloat16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 32)
        self.second = nn.Linear(32, 16)
        nn.init.constant_(self.second.bias, 3.0)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def squared_distance(a, b):
    if MODE == "fixed":
        return (a.float() - b.float()).square().sum(-1)
    return a.square().sum(-1) + b.square().sum(-1) - 2 * (a * b).sum(-1)


encoder = Encoder().to(DTYPE)
optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-2)
for step in range(14):
    anchor = torch.randn(64, 6, dtype=DTYPE)
    near = anchor + 0.2 * torch.randn(64, 6, dtype=DTYPE)
    far = torch.randn(64, 6, dtype=DTYPE)
    a = encoder(anchor)
    closeness = torch.log(squared_distance(a, encoder(near)) + 1e-3)
    loss = (closeness - torch.log(squared_distance(a, encoder(far)) + 1e-3)).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")
