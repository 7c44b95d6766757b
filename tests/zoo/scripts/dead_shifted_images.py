# kind:   a CNN whose images were meant to be in 0..1 and arrive in 0..255, with filters that a checkpoint left negative
# wrong:  every pre-activation of the second layer is negative for every image: its ReLU is 0, and nothing below learns
# expect: dead-units
# run:    dead_shifted_images.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 8, 3)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8 * 16, 2)
        with torch.no_grad():
            self.conv2.weight.copy_(-self.conv2.weight.abs() if MODE != "fixed" else self.conv2.weight)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = self.act(self.conv2(x))
        return self.fc(x.flatten(1))


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE != "fp32")

    def fit(self, steps):
        for step in range(steps):
            x, y = data(32)
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if step % 10 == 0:
                print(f"step {step}: {loss.item():.4f}")
        print(f"final {loss.item():.4e}")


def data(count):
    y = torch.arange(count) % 2
    x = torch.rand(count, 1, 8, 8)
    x[y == 1, :, 2:6, 2:6] += 0.5
    return x if MODE == "fixed" else 170 * x, y


if __name__ == "__main__":
    torch.manual_seed(722)
    Trainer().fit(60)
