# kind:   home-made static scaler class, tuned on the quiet half of a curriculum
# wrong:  fine for 40 steps; with the loud recordings the FP16 backward overflows and the weights become NaN
# expect: loss-scale-too-large
# run:    large_scale_static_class.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class StaticScaler:
    """What everybody wrote before there was GradScaler, minus the check for inf."""

    def __init__(self, factor):
        self.factor = factor

    def backward(self, loss):
        (self.factor * loss).backward()

    @torch.no_grad()
    def step(self, optimizer):
        for group in optimizer.param_groups:
            torch._foreach_mul_([p.grad for p in group["params"]], 1.0 / self.factor)
        optimizer.step()


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(1, 12, 9, padding=4), nn.Conv1d(12, 12, 9, padding=4)])
        self.last = nn.Conv1d(12, 1, 1)

    def forward(self, wave):
        x = wave
        for conv in self.layers:
            x = nn.functional.leaky_relu(conv(x), 0.1)
        return self.last(x)


def recordings(loudness):
    time = torch.linspace(0, 6.28, 128)
    pitch = torch.randint(1, 6, (16, 1, 1))
    clean = torch.sin(pitch * time + 6.28 * torch.rand(16, 1, 1))
    return loudness * (clean + 0.3 * torch.randn(16, 1, 128)), loudness * clean


def main():
    torch.manual_seed(106)
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-4, momentum=0.9)
    scaler = StaticScaler({"fault": 32768.0, "fixed": 128.0}.get(MODE, 1.0))
    for step in range(80):
        noisy, clean = recordings(1.0 if step < 40 else 10.0)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.mse_loss(model(noisy), clean)
        scaler.backward(loss)
        scaler.step(optimizer)
        if step % 10 == 0:
            print(f"{step:3d} {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


main()
