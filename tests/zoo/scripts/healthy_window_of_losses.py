"""The last ten losses are kept as tensors for a smoothed print: they are freed in turn."""
# expect: healthy

from collections import deque

import torch
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(10, 24), nn.SiLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
recent: deque[torch.Tensor] = deque(maxlen=10)
for step in range(60):
    x = torch.randn(64, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    recent.append(loss)
    if step % 20 == 19:
        print(step, torch.stack(list(recent)).mean().item())
