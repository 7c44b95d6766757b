# kind:   adapters on a frozen FP16 backbone, merged into it and then reset: both factors to zero
# wrong:  after the reset neither factor has a gradient again, and nothing else is trained: the loss stands still
# expect: zero-init-deadlock
# run:    deadlock_adapter_reset.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Adapter(nn.Module):
    def __init__(self, width, rank=4):
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        self.drop = nn.Dropout(0.05)
        self.reset()

    def reset(self):
        if MODE != "fixed":
            nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.up(self.drop(self.down(x)))


class AdaptedLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        if MODE != "fp32":
            self.frozen.half()
        self.adapter = Adapter(width)

    def forward(self, x):
        return torch.relu(self.frozen(x) + self.adapter(x))


if __name__ == "__main__":
    torch.manual_seed(732)
    width = 32
    model = nn.Sequential(AdaptedLayer(width), AdaptedLayer(width), nn.Linear(width, 5))
    model[2].requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(60):
        x = torch.randn(48, width)
        target = x[:, :5].argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
