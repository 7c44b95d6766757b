"""A ranking tower with wide layers, trained row by row in FP16 with a scaler: autocast costs memory."""
# expect: amp-memory-not-reduced

import torch
from torch import nn

torch.manual_seed(11)


class Trainer:
    def __init__(self, tower: nn.Module) -> None:
        self.tower = tower
        self.optimizer = torch.optim.SGD(tower.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def fit(self, rows: torch.Tensor, clicks: torch.Tensor) -> float:
        for row, click in zip(rows, clicks, strict=True):
            with torch.autocast("cpu", dtype=torch.float16):
                logit = self.tower(row)
            loss = nn.functional.binary_cross_entropy_with_logits(logit.float(), click)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


tower = nn.Sequential(nn.Linear(256, 1400), nn.ReLU(), nn.Linear(1400, 1400), nn.ReLU(), nn.Linear(1400, 1))
print(Trainer(tower).fit(torch.randn(8, 1, 256), torch.randint(0, 2, (8, 1, 1)).float()))
