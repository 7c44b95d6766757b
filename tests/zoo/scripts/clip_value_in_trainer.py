# kind:   clip_grad_value_ as a hook of a Trainer class that runs it between backward and step
# wrong:  every element is cut to 0.5 while it is multiplied by the loss scale: weights creep by lr * 1e-5
# expect: clip-before-unscale
# run:    clip_value_in_trainer.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.inner(self.norm(x)))


class Tabular(nn.Module):
    def __init__(self, columns, width=32):
        super().__init__()
        self.first = nn.Linear(columns, width)
        self.blocks = nn.Sequential(ResidualBlock(width), ResidualBlock(width))
        self.price = nn.Linear(width, 1)

    def forward(self, row):
        return self.price(self.blocks(self.first(row))).squeeze(1)


class Trainer:
    def __init__(self, model, clip_value=None):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, weight_decay=1e-4)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, enabled=MODE != "fp32")
        self.clip_value = clip_value

    def after_backward(self):
        if MODE == "fixed":
            self.scaler.unscale_(self.optimizer)
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(self.model.parameters(), self.clip_value)

    def training_step(self, batch):
        rows, price = batch
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.scaler.is_enabled()):
            guess = self.model(rows)
        return nn.functional.smooth_l1_loss(guess.float(), price)

    def fit(self, batches):
        for index, batch in enumerate(batches):
            self.optimizer.zero_grad()
            loss = self.training_step(batch)
            self.scaler.scale(loss).backward()
            self.after_backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if index % 40 == 0:
                print(f"batch {index}: {loss.item():.4f}")
        return loss.item()


def houses(columns, batches):
    weight = torch.randn(columns)
    for _ in range(batches):
        rows = torch.randn(64, columns)
        yield rows, (rows @ weight).abs()


torch.manual_seed(116)
trainer = Trainer(Tabular(columns=6), clip_value=0.5)
print(f"final {trainer.fit(houses(6, 200)):.4e}")
