# kind:   two optimizers and one scaler, in FP32: autocast was taken out, the scaler was not
# wrong:  nothing needs scaling; with this growth the scale runs away and steps are skipped
# expect: scaler-unneeded
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(6)
generator = nn.Sequential(nn.Linear(4, 24), nn.LeakyReLU(0.2), nn.Linear(24, 8))
critic = nn.Sequential(nn.Linear(8, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-4)
for_critic = torch.optim.Adam(critic.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", growth_factor=4.0, growth_interval=2)
for _ in range(140):
    real, noise = torch.randn(16, 8) + 1.0, torch.randn(16, 4)
    for_critic.zero_grad()
    fake = generator(noise)
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    scaler.scale(loss).backward()
    scaler.step(for_critic)
    for_generator.zero_grad()
    adversarial = F.softplus(-critic(fake)).mean()
    scaler.scale(adversarial).backward()
    scaler.step(for_generator)
    scaler.update()
print(loss.item(), adversarial.item(), scaler.get_scale())
