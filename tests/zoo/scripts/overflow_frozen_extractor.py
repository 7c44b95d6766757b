# kind:   frozen backbone cast with .half() for speed, run under no_grad; only an FP32 head is trained
# wrong:  one channel of the backbone (pre-trained in BF16) exceeds 65504: features are inf, the head turns NaN
# expect: activation-overflow
# run:    overflow_frozen_extractor.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
BACKBONE_DTYPE = {"fp32": torch.float32, "fixed": torch.bfloat16}.get(MODE, torch.float16)


class Backbone(nn.Module):
    """Two residual feed-forward blocks; the second one has a massive channel, as large models do."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Linear(20, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"up": nn.Linear(width, 64), "down": nn.Linear(64, width)}) for _ in range(2)
        )
        with torch.no_grad():
            self.blocks[1]["up"].weight[5] *= 400
            self.blocks[1]["down"].weight[7, 5] = 900.0

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block["down"](nn.functional.silu(block["up"](x)))
        return x


def features_of(backbone, x):
    with torch.no_grad():
        return backbone(x.to(BACKBONE_DTYPE)).float()


def main():
    torch.manual_seed(110)
    backbone = Backbone().to(BACKBONE_DTYPE).eval().requires_grad_(False)
    head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adagrad(head.parameters(), lr=0.05)
    x = torch.randn(512, 20)
    y = (x[:, 0] + x[:, 1] > 0).float()[:, None]
    for epoch in range(8):
        for rows in torch.randperm(512).split(64):
            optimizer.zero_grad()
            logits = head(features_of(backbone, x[rows]))
            loss = nn.functional.binary_cross_entropy_with_logits(logits, y[rows])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
