# kind:   convolutional GAN, two optimizers and one scaler: both losses scaled, both stepped, one update
# wrong:  nothing: the generator's backward also fills the critic's gradients, which are cleared unused
# expect: healthy
# run:    healthy_gan_two_optimizers.py [fp32]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Generator(nn.Module):
    def __init__(self, noise=6):
        super().__init__()
        self.start = nn.Linear(noise, 8 * 4)
        self.grow = nn.ConvTranspose1d(8, 8, 4, stride=2, padding=1)
        self.last = nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1)

    def forward(self, noise):
        x = F.relu(self.start(noise)).view(-1, 8, 4)
        return self.last(F.relu(self.grow(x)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 8, 4, stride=2), nn.LeakyReLU(0.2))
        self.score = nn.Linear(8 * 7, 1)

    def forward(self, wave):
        return self.score(self.body(wave).flatten(1))


class GAN:
    def __init__(self):
        self.generator, self.critic = Generator(), Critic()
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
        self.scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")

    def step(self, real):
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            fake = self.generator(torch.randn(len(real), 6))
            loss_c = F.softplus(-self.critic(real)).mean()
            loss_c = loss_c + F.softplus(self.critic(fake.detach())).mean()
        self.opt_c.zero_grad()
        self.scaler.scale(loss_c).backward()
        self.scaler.step(self.opt_c)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss_g = F.softplus(-self.critic(fake)).mean()
        self.opt_g.zero_grad()
        self.scaler.scale(loss_g).backward()
        self.scaler.step(self.opt_g)
        self.scaler.update()
        return fake.detach().float()


def main():
    torch.manual_seed(210)
    gan = GAN()
    time = torch.linspace(0, 6.28, 16)
    shape = 1.0 + torch.sin(time)
    for step in range(150):
        real = shape + 0.2 * torch.randn(32, 1, 16)
        fake = gan.step(real)
        off = (fake.mean(dim=(0, 1)) - shape).abs().mean().item()
        if step % 30 == 0:
            print(f"step {step}: mean shape is off by {off:.3f}")
    print(f"final {off:.4e}")


if __name__ == "__main__":
    main()
