# kind:   checkpoint loaded in FP16 and fine-tuned as it is with Adam (eps raised against NaN), loss summed
# wrong:  a step of 3e-5 is less than half a last place of weights above 1/8: they never change
# expect: lost-updates
# run:    lost_fp16_adam_finetune.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Ranker(nn.Module):
    """Scores a pair of items by a bilinear form of their features."""

    def __init__(self, features=24, width=64):
        super().__init__()
        self.item = nn.Linear(features, width)
        self.pair = nn.Linear(width, width, bias=False)

    def forward(self, left, right):
        left, right = torch.tanh(self.item(left)), torch.tanh(self.item(right))
        return (self.pair(left) * right).sum(dim=1)


def checkpoint(model):
    """Stands in for a file: what pre-training left, in FP16."""
    state = model.state_dict()
    return {name: (value + 0.3 * torch.randn_like(value)).half() for name, value in state.items()}


def main():
    torch.manual_seed(118)
    model = Ranker()
    state = checkpoint(model)
    if MODE == "fault":
        model.half()
    model.load_state_dict(state)
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-5, eps=1e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE == "fixed")
    left, right = torch.randn(128, 24, dtype=dtype), torch.randn(128, 24, dtype=dtype)
    order = torch.sign(left[:, 0] - right[:, 0]).float()
    for step in range(150):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE == "fixed"):
            margin = model(left, right)
        loss = nn.functional.softplus(-order * margin.float()).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 30 == 0:
            print(f"step {step}: {loss.item() / 128:.4f}")
    print(f"final {loss.item() / 128:.4e}")


if __name__ == "__main__":
    main()
