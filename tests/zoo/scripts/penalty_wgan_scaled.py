# kind:   WGAN with gradient penalty, ported to AMP: the scaled score is differentiated, and not unscaled
# wrong:  the norms that should be near 1 are near the loss scale; the penalty drowns everything
# expect: gradient-penalty-scaled
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(71)
critic = nn.Sequential(nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 1))
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(between)
    (grad,) = torch.autograd.grad(scaler.scale(score.float().sum()), between, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


for it in range(60):
    real = torch.randn(32, 2) + 2
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(torch.randn(32, 4))
        gap = critic(fake.detach()).float().mean() - critic(real).float().mean()
    loss_c = gap + 10 * penalty(real, fake.detach().float())
    opt_c.zero_grad()
    scaler.scale(loss_c).backward()
    scaler.step(opt_c)
    with torch.autocast("cpu", dtype=torch.float16):
        loss_g = -critic(fake).float().mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
    if it % 20 == 0:
        print(it, loss_c.item(), scaler.get_scale())
