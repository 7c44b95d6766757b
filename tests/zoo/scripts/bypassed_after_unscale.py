"""Gradients are unscaled by the scaler, and the optimizer steps by itself: an overflow is in the weights at once."""
# expect: scaler-bypassed

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
sgd = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", growth_interval=10)
for _ in range(80):
    x = torch.randn(64, 16) * 2
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
    sgd.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(sgd)
    sgd.step()
    scaler.update()
print(loss.item(), scaler.get_scale())
