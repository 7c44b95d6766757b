# kind:   GAN with one scaler that is updated after each network's turn; gradients are cleared by the modules
# wrong:  nothing: each turn has a backward pass, a step and an update of its own
# expect: healthy
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(3)
net_g = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
net_d = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
opt_g = torch.optim.Adam(net_g.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(net_d.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=50)

for _ in range(80):
    real = torch.randn(32, 2) * 0.3 + 1.0
    fake = net_g(torch.randn(32, 4))
    net_d.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss_d = F.softplus(-net_d(real).float()).mean() + F.softplus(net_d(fake).float()).mean()
    scaler.scale(loss_d).backward(retain_graph=True)
    scaler.step(opt_d)
    scaler.update()

    for p in net_g.parameters():
        p.grad = None
    with torch.autocast("cpu", dtype=torch.float16):
        loss_g = F.softplus(-net_d(net_g(torch.randn(32, 4))).float()).mean()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
