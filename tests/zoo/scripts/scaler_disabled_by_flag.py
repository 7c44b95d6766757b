# kind:   a trainer whose flags disagree: FP16 autocast is on, the scaler's switch was forgotten
# wrong:  scale() and step() pass everything through
# expect: scaler-disabled
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


@dataclass
class Config:
    half: bool = True
    loss_scaling: bool = False
    lr: float = 0.05
    accumulate: int = 2


class Trainer:
    def __init__(self, config):
        torch.manual_seed(12)
        self.config = config
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(32, 4),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, nesterov=True, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", enabled=config.loss_scaling)

    def micro_batch(self):
        x = torch.randn(12, 3, 10, 10)
        y = (x.mean((2, 3)) @ torch.tensor([1.0, 2.0, -1.0]) > 0).long()
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.config.half):
            return F.cross_entropy(self.model(x), y) / self.config.accumulate

    def fit(self, steps):
        for _ in range(steps):
            for _ in range(self.config.accumulate):
                loss = self.micro_batch()
                self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        print(loss.item())


Trainer(Config()).fit(25)
