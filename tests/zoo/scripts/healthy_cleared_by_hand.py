# kind:   no zero_grad anywhere: gradients are set to None by hand, also after the scaler's first backoffs
# wrong:  nothing
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(6)
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18)
for _ in range(80):
    for p in net.parameters():
        p.grad = None
    x = torch.randn(64, 12) * 2
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x).float(), x.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
