# kind:   time steps of a diffusion model cast to the model's BF16 before the sinusoidal embedding
# wrong:  from 256 on only every 2nd, from 512 on only every 4th time step exists
# expect: bf16-integer-precision
# run:    integers_diffusion_time_steps.py [fixed]
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if "fixed" in sys.argv else torch.bfloat16
STEPS = 1000


def embedding(t, width=32):
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(width // 2) / (width // 2))
    angles = t.float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Linear(32, width)
        self.body = nn.Sequential(nn.Linear(8, width), nn.SiLU())
        self.out = nn.Linear(width, 8)

    def forward(self, x, t):
        return self.out(torch.nn.functional.silu(self.body(x) + self.time(embedding(t))))


class Experiment:
    def __init__(self):
        torch.manual_seed(21)
        self.model = Denoiser()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.alpha = torch.cos(torch.linspace(0, math.pi / 2, STEPS)) ** 2

    def training_step(self, batch):
        t = torch.randint(0, STEPS, (batch.shape[0],))
        noise = torch.randn_like(batch)
        alpha = self.alpha[t, None]
        noisy = alpha.sqrt() * batch + (1 - alpha).sqrt() * noise
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = self.model(noisy, t.to(DTYPE))
        return (predicted.float() - noise).pow(2).mean()

    def fit(self, steps=60):
        data = torch.randn(512, 8).tanh()
        for _ in range(steps):
            loss = self.training_step(data[torch.randint(0, 512, (64,))])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(f"loss {loss.item():.3f}")


Experiment().fit()
