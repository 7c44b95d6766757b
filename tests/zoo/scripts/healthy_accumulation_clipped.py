# kind:   everything at once and in the right order: accumulation, unscale_, clipping that bites, a schedule
# wrong:  nothing: .grad holds huge scaled sums between the micro-batches, and the norm is cut on every step
# expect: healthy
# run:    healthy_accumulation_clipped.py [fp32]
import sys

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class SeriesModel(nn.Module):
    def __init__(self, channels=4, width=32):
        super().__init__()
        self.gru = nn.GRU(channels, width, num_layers=2, batch_first=True)
        self.next = nn.Linear(width, channels)

    def forward(self, series):
        return self.next(self.gru(series)[0])


def waves(count, length=16):
    time = torch.arange(length + 1.0)
    speed = 0.2 + 0.6 * torch.rand(count, 4, 1)
    return torch.sin(speed * time + 6.28 * torch.rand(count, 4, 1)).transpose(1, 2)


def main(accumulate=4, steps=40):
    torch.manual_seed(206)
    model = SeriesModel()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    norms = []
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(accumulate):
            series = waves(12)
            with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
                loss = nn.functional.mse_loss(model(series[:, :-1]), series[:, 1:]) / accumulate
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        norms.append(clip_grad_norm_(model.parameters(), 0.02).item())
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        if step % 10 == 0:
            print(f"step {step}: {total:.4f}, gradient norm {norms[-1]:.3f}")
    print(f"cut {sum(norm > 0.02 for norm in norms)} of {steps} times")
    print(f"final {total:.4e}")


if __name__ == "__main__":
    main()
