# kind:   a deep chain of tanh layers started with weights of 0.02, as a transformer recipe says, under BF16 autocast
# wrong:  each layer passes on a tenth of the gradient; blamed on BF16, but FP32 does not learn either
# expect: vanishing-gradient
# run:    vanishing_tanh_chain_bf16.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Chain(nn.Module):
    def __init__(self, width=40, depth=12):
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.steps = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 3)
        if MODE != "fixed":
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, std=0.02)
                    nn.init.zeros_(layer.bias)

    def forward(self, x):
        h = torch.tanh(self.enter(x))
        for step in self.steps:
            h = torch.tanh(step(h)) + (h if MODE == "fixed" else 0)
        return self.leave(h)


def main():
    torch.manual_seed(711)
    model = Chain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(80):
        x = torch.randn(64, 16)
        target = x[:, :3].argmax(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
