# kind:   growth_factor=8 every 3 steps against a backoff of 1/2: up in one leap, down in three skipped steps
# wrong:  about half of all steps is skipped while loss and gradients are finite and healthy
# expect: scale-hunting
# run:    hunting_growth_factor.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class DigitNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3),
            nn.SiLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(12 * 9, 10),
        )


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        options = {"growth_factor": 8.0, "growth_interval": 3} if MODE == "fault" else {}
        self.scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32", **options)
        self.skipped = 0

    def step(self, image, digit):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(self.model(image), digit, label_smoothing=0.05)
        self.scaler.scale(loss).backward()
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.skipped += self.scaler.get_scale() < before
        return loss.item()

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in loader)
        self.model.train()
        return right / len(loader.dataset)

    def fit(self, train, test, epochs):
        for epoch in range(epochs):
            losses = [self.step(*batch) for batch in train]
            mean = sum(losses) / len(losses)
            accuracy = self.accuracy(test)
            print(f"epoch {epoch}: {mean:.4f}, accuracy {accuracy:.2f}, skipped {self.skipped}")
        return mean


def digits(shapes, count):
    digit = torch.randint(0, 10, (count,))
    return TensorDataset(shapes[digit] + 0.8 * torch.randn(count, 1, 12, 12), digit)


if __name__ == "__main__":
    torch.manual_seed(112)
    shapes = torch.randn(10, 1, 12, 12).sign()
    net = DigitNet()
    sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.5)
    train = DataLoader(digits(shapes, 512), batch_size=32, shuffle=True)
    test = DataLoader(digits(shapes, 128), batch_size=64)
    print(f"final {Trainer(net, sgd).fit(train, test, epochs=6):.4e}")
