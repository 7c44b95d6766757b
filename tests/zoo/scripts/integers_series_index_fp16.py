# kind:   index of each sample of a long series as an FP16 feature
# wrong:  from 2048 on FP16 knows every 2nd index only, from 4096 on every 4th: the alternating part can't be fitted
# expect: bf16-integer-precision
# run:    integers_series_index_fp16.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "fixed" in sys.argv
LENGTH = 6000


def features(index):
    powers = 2.0 ** -torch.arange(1, 9)
    return torch.remainder(index[:, None] * powers, 1.0)


torch.manual_seed(22)
index = torch.arange(LENGTH, dtype=torch.float32 if FIXED else torch.float16).float()
inputs = features(index) - 0.5
target = (torch.arange(LENGTH) % 4).float().sub(1.5)[:, None]
net = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(2):
    for rows in torch.randperm(LENGTH).split(500):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(inputs[rows])
        loss = nn.functional.mse_loss(out.float(), target[rows])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
print(loss.item())
