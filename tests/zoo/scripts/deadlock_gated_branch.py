# kind:   a residual block gated by a scalar of zero (ReZero), whose last layer somebody zero-initialised as well
# wrong:  the gate waits for the layer and the layer for the gate: the branch never learns, in BF16 and in FP32
# expect: zero-init-deadlock
# run:    deadlock_gated_branch.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class GatedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        if MODE != "fixed":
            nn.init.zeros_(self.down.weight)
            nn.init.zeros_(self.down.bias)

    def forward(self, x):
        return x + self.gate * self.down(torch.nn.functional.silu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.enter = nn.Linear(8, width)
        self.blocks = nn.ModuleList(GatedBlock(width) for _ in range(depth))
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


if __name__ == "__main__":
    torch.manual_seed(731)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(70):
        x = torch.randn(64, 8)
        y = x[:, :1] * x[:, 1:2] + x[:, 2:3]
        with torch.autocast("cpu", torch.bfloat16, enabled=MODE != "fp32"):
            loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
