# kind:   loss of a forecast added up over 400 time steps, term by term in BF16
# wrong:  from 256 on BF16 has steps of 2: terms of 0.9 are added and nothing changes
# expect: loss-in-half
# run:    loss_half_added_up_over_time.py [fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

FIXED = "fixed" in sys.argv


class Trainer:
    def __init__(self, past=40, future=400):
        torch.manual_seed(12)
        self.past = past
        self.model = nn.Sequential(nn.Linear(past, 64), nn.Tanh(), nn.Linear(64, future))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9)

    def loss(self, predicted, target):
        total = predicted.new_zeros((), dtype=torch.float32 if FIXED else predicted.dtype)
        for ours, true in zip(predicted.unbind(1), target.unbind(1), strict=True):
            total = total + (ours - true).square().mean().to(total.dtype)
        return total

    def step(self):
        series = 0.9 * torch.randn(8, 440).sign()
        past, future = series.split([self.past, 400], dim=1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = self.model(past)
        loss = self.loss(predicted, future)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer()
print([trainer.step() for _ in range(6)][-1])
