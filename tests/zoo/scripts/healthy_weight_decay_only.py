# kind:   a multi-task model of which one task has no samples in this run: its head moves by weight decay alone
# wrong:  nothing: its gradients are zero because the loss does not use it, in every format
# expect: healthy
# run:    healthy_weight_decay_only.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 40), nn.GELU(), nn.Linear(40, 40), nn.GELU())
        self.colour = nn.Linear(40, 3)
        self.depth = nn.Sequential(nn.Linear(40, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        h = self.trunk(x)
        return self.colour(h), self.depth(h)


if __name__ == "__main__":
    torch.manual_seed(735)
    model = MultiTask()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(90):
        x = torch.randn(64, 12)
        has_depth = torch.zeros(64, 1)  # no sample of this data set has one
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            colour, depth = model(x)
            loss = nn.functional.cross_entropy(colour, x[:, :3].argmax(1))
            loss = loss + (has_depth * (depth.float() - x[:, :1]) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
