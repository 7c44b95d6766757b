# kind:   a tabular model .half()-ed to save memory, AdamW without foreach, a loop in a class with early stopping
# wrong:  gradients are finite, and after the first step some weights are NaN: sqrt(v) + 1e-8 is 0 in FP16
# expect: adam-eps-underflow
# run:    adam_eps_fp16_regression_class.py [fp32|fixed]
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Net(nn.Module):
    def __init__(self, features=20):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.wide = nn.Linear(features, 1)
        self.deep = nn.ModuleList([nn.Linear(features, features) for _ in range(3)])

    def forward(self, x):
        hidden = self.norm(x)
        for layer in self.deep:
            hidden = hidden + torch.tanh(layer(hidden)) / 3
        return self.wide(hidden).squeeze(-1)


class Fitting:
    def __init__(self):
        torch.manual_seed(305)
        self.model = Net() if MODE == "fp32" else Net().half()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=2e-3, eps=1e-4 if MODE == "fixed" else 1e-8, foreach=False
        )
        self.x = torch.randn(256, 20)
        self.y = self.x[:, 0] - 0.3 * self.x[:, 1]

    def run(self):
        dtype = next(self.model.parameters()).dtype
        for step in range(40):
            guess = self.model(self.x.to(dtype)).float()
            loss = nn.functional.smooth_l1_loss(guess, self.y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(f"{step}: {loss.item():.4f}")
            if not math.isfinite(loss.item()):
                print("stopped: the loss is not finite")
                return


if __name__ == "__main__":
    Fitting().run()
