"""The same kind of wide layers, with enough rows in a batch: BF16 activations save more than weight copies take."""
# expect: healthy

import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(2048, 64)
y = x[:, :1] * x[:, 1:2]
for _ in range(6):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction = model(x)
    loss = (prediction.float() - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
