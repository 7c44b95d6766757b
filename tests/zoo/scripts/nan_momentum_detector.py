# kind:   a learning rate taken over from a batch size of 4096, without warm-up: the loss explodes within a few steps
# wrong:  the scaler skips and its scale falls, as if FP16 were at fault; the same loop in FP32 diverges as well
# expect: nan-not-precision (consequence: scale-collapse)
# run:    nan_momentum_detector.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Detector(nn.Module):
    """Predicts a box from a blob on a grid."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2), nn.SiLU(), nn.Conv2d(12, 24, 3, stride=2), nn.SiLU()
        )
        self.box = nn.Linear(24 * 9, 4)

    def forward(self, image):
        return self.box(self.features(image).flatten(1))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")

    def step(self, image, box):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            predicted = self.model(image)
        loss = F.mse_loss(predicted.float(), box)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def batch(count):
    box = torch.rand(count, 4) * 8 + 2
    grid = torch.arange(16.0)
    x = torch.exp(-((grid - box[:, :1]) ** 2) / box[:, 2:3])[:, None, :]
    y = torch.exp(-((grid - box[:, 1:2]) ** 2) / box[:, 3:4])[:, :, None]
    return (x * y)[:, None], box


if __name__ == "__main__":
    torch.manual_seed(701)
    trainer = Trainer(Detector(), lr=3e-3 if MODE == "fixed" else 0.8)
    for step in range(60):
        loss = trainer.step(*batch(64))
        if step % 6 == 0:
            print(f"step {step}: {loss:.4g} scale {trainer.scaler.get_scale():g}")
    print(f"final {loss:.4e}")
