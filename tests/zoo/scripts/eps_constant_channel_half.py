# kind:   model.half() without a scaler; features are standardised by their own spread, one of them is constant
# wrong:  std + 1e-9 is 0 in FP16: 0 / 0 is NaN in the first forward pass, and the weights are NaN after it
# expect: eps-underflow
# run:    eps_constant_channel_half.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(55)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.float32 if MODE == "fp32" else torch.float16


class Standardise(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(0)
        return centred / (centred.abs().mean(0) + self.eps)


class Tabular(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = Standardise(1e-3 if MODE == "fixed" else 1e-9)
        self.body = nn.Sequential(nn.Linear(columns, 40), nn.LeakyReLU(), nn.Linear(40, 1))

    def forward(self, table):
        return self.body(self.scale(table)).squeeze(1)


model = Tabular(7).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.5)
table = torch.rand(96, 7)
table[:, 4] = 1.0  # a column that says the same of everybody
outcome = table[:, 0] - table[:, 1]

for epoch in range(4):
    for rows in torch.randperm(96).split(24):
        predicted = model(table[rows].to(DTYPE))
        loss = (predicted.float() - outcome[rows]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
