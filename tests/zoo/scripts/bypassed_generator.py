# kind:   GAN where only the discriminator's step goes through the scaler
# wrong:  the generator's SGD applies gradients that are 1024 times too large
# expect: scaler-bypassed
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(5)

net_g = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
net_d = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
opt_g = torch.optim.SGD(net_g.parameters(), lr=0.01)
opt_d = torch.optim.Adam(net_d.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for it in range(60):
    real = torch.randn(32, 2) * 0.3 + 1.0
    net_d.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = net_g(torch.randn(32, 4))
        loss_d = F.softplus(-net_d(real).float()).mean() + F.softplus(net_d(fake.detach()).float()).mean()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    scaler.update()

    net_g.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss_g = F.softplus(-net_d(fake).float()).mean()
    scaler.scale(loss_g).backward()
    opt_g.step()
    if it % 20 == 0:
        print(it, loss_d.item(), loss_g.item())
