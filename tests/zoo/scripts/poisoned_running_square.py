"""A normaliser keeps the mean square of its input: one outlier overflows it in FP16, and no gradient knows."""
# expect: buffer-poisoned-by-overflow

import torch
from torch import nn


class RunningNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("square", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x / (self.square + 1e-5).sqrt()
        with torch.no_grad():
            self.square.lerp_(x.pow(2).mean(0).float(), 0.1)
        return x / (x.float().pow(2).mean(0) + 1e-5).sqrt()


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), RunningNorm(32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    data = torch.randn(200, 8)
    data[77] *= 2e3
    labels = (data[:, 0] > 0).long()
    for epoch in range(4):
        model.train()
        for rows in torch.arange(200).split(20):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(data[rows]), labels[rows])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
            print(epoch, loss.item(), nn.functional.cross_entropy(model(data[:50]), labels[:50]).item())


main()
