# kind:   residual CNN with BatchNorm, in-place ReLU and dropout of 0.8, at a loss scale of 65536
# wrong:  nothing: most activations and gradients are zero in every format, and the scale is large by design
# expect: healthy
# run:    healthy_dropout_batchnorm_cnn.py [fp32]
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        nn.init.zeros_(self.body[-1].weight)  # the block starts as the identity

    def forward(self, x):
        out = self.body(x)
        out += x
        return torch.relu_(out)


class Net(nn.Module):
    def __init__(self, classes=5, width=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, stride=2), nn.BatchNorm2d(width))
        self.stages = nn.Sequential(Residual(width), Residual(width))
        self.drop = nn.Dropout(0.8)
        self.head = nn.Linear(width * 25, classes)

    def forward(self, x):
        x = self.stages(torch.relu(self.stem(x)))
        return self.head(self.drop(x.flatten(1)))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(202)
    patterns = torch.randn(5, 1, 11, 11)
    label = torch.randint(0, 5, (256,))
    data = TensorDataset(patterns[label] + 2.5 * torch.randn(256, 1, 11, 11), label)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for epoch in range(5):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        quality = evaluate(model, loader)
        print(f"epoch {epoch}: train {loss.item():.4f}, eval {quality:.4f}")
    print(f"final {quality:.4e}")


if __name__ == "__main__":
    main()
