# kind:   an AverageMeter that keeps its sum in BF16 and is reset each epoch of 700 batches; FP32 training
# wrong:  the mean that is logged sinks in the course of an epoch: the sum no longer takes what is added
# expect: bf16-metric-accumulator
# run:    metric_meter_bf16_epoch.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.bfloat16 if sys.argv[1:] == [] else torch.float32


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count = torch.zeros((), dtype=DTYPE), 0

    def update(self, value):
        self.sum = self.sum + value.to(DTYPE)
        self.count += 1

    @property
    def mean(self):
        return self.sum.item() / self.count


class Trainer:
    def __init__(self):
        torch.manual_seed(318)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.meter = AverageMeter()

    def epoch(self):
        self.meter.reset()
        for _ in range(700):
            x, label = torch.randn(16, 6), torch.randint(0, 5, (16,))
            loss = nn.functional.cross_entropy(self.model(x), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.meter.update(loss.detach())
        return self.meter.mean


trainer = Trainer()
for number in range(2):
    print(f"epoch {number}: {trainer.epoch():.4f}")
