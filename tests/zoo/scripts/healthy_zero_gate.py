# kind:   residual blocks behind a gate of zero (ReZero), and an auxiliary head whose loss has a weight of zero so far
# wrong:  nothing: the gates move on the first step, the branches behind them from the second; the head waits its turn
# expect: healthy
# run:    healthy_zero_gate.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))
        self.branch = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.gate * self.branch(x)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter = nn.Linear(10, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.main = nn.Linear(width, 3)
        self.auxiliary = nn.Linear(width, 1)
        nn.init.zeros_(self.auxiliary.weight)
        nn.init.zeros_(self.auxiliary.bias)

    def forward(self, x):
        h = self.blocks(self.enter(x))
        return self.main(h), self.auxiliary(h)


if __name__ == "__main__":
    torch.manual_seed(733)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    weight = 0.0  # of the auxiliary loss, raised in the second phase
    for step in range(80):
        x = torch.randn(64, 10)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            main, auxiliary = model(x)
            loss = nn.functional.cross_entropy(main, x[:, :3].argmax(1))
            loss = loss + weight * nn.functional.mse_loss(auxiliary.float(), x[:, :1])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
