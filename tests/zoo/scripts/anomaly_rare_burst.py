# kind:   a burst in the data makes one batch's gradients overflow under a scale that fits all others
# wrong:  the scaler would skip that step; with anomaly mode on, it ends the training ("returned nan values")
# expect: anomaly-false-alarm
# run:    anomaly_rare_burst.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, enabled=MODE != "fp32")

    def loss(self, batch, target):
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            return nn.functional.mse_loss(self.model(batch).squeeze(1), target)

    def fit(self, steps):
        for index in range(steps):
            batch = torch.randn(16, 1, 10, 10)
            target = batch.mean((1, 2, 3))
            if index == 37:
                target = target * 2e5
            loss = self.loss(batch, target)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(self.unscaled(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return index, loss.item(), self.scaler.get_scale()

    def unscaled(self):
        self.scaler.unscale_(self.optimizer)
        return self.model.parameters()


torch.manual_seed(215)
torch.autograd.set_detect_anomaly(MODE == "fault")
trainer = Trainer(
    nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 16, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )
)
try:
    print(trainer.fit(60))
except RuntimeError as error:
    print("training failed:", error)
