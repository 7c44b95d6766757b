# kind:   value network with its own running normaliser (a buffer moved by hand), FP16 autocast, two losses
# wrong:  a wide layer overflows on the first batch, before the inputs are scaled; the running spread stays infinite
# expect: buffer-poisoned-by-overflow
# run:    poisoned_running_scale.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(140)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class RunningScale(nn.Module):
    """Divides by the batch's spread in training, by the running one afterwards."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("spread", torch.ones(width))

    def forward(self, x):
        if self.training:
            now = x.detach().abs().mean(0).float()
            self.spread.mul_(0.9).add_(now, alpha=0.1)
            return x / (x.abs().mean(0) + 1e-2)
        return x / (self.spread + 1e-2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(6, 48)
        self.scale = RunningScale(48)
        self.value, self.doubt = nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, state):
        h = torch.tanh(self.scale(self.wide(state)))
        return self.value(h), self.doubt(h)


critic = Critic()
optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=MODE != "fp32")
offset = torch.zeros(6)

for update in range(50):
    state = torch.randn(32, 6) + offset
    if update == 4:
        state[3] += 4e5
    target = state[:, :1].clamp(-3, 3)
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        value, doubt = critic(state)
    error = (value.float() - target).square()
    loss = error.mean() + 0.1 * (doubt.float() - error.detach().sqrt()).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if update % 10 == 0:
        print(f"update {update}: loss {loss.item():.4f}")
