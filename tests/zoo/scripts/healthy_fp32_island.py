# kind:   a spectrum layer kept in FP32 on purpose, inside an FP16 model: its energies reach millions
# wrong:  nothing: 65504 is no limit there, and what comes out of it is a logarithm
# expect: healthy
# run:    healthy_fp32_island.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Energy(nn.Module):
    def forward(self, filtered):
        return filtered.float().square().sum(dim=2)


class PitchNet(nn.Module):
    def __init__(self, pitches):
        super().__init__()
        self.filters = nn.Conv1d(1, 24, 16, stride=4, bias=False)
        self.energy = Energy()
        self.norm = nn.LayerNorm(24)
        self.head = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, pitches))

    def forward(self, wave):
        filtered = self.filters(wave)
        with torch.autocast("cpu", enabled=False):
            energy = self.energy(filtered)
            features = self.norm(torch.log(energy + 1.0))
        return self.head(features)


def notes(count, pitches):
    pitch = torch.randint(0, pitches, (count,))
    phase = 6.28 * torch.rand(count, 1)
    wave = torch.sin(0.15 * (pitch[:, None] + 2) * torch.arange(96.0) + phase)
    return (3000.0 * wave + 1500.0 * torch.randn(count, 96))[:, None], pitch


if __name__ == "__main__":
    torch.manual_seed(214)
    model = PitchNet(pitches=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(80):
        wave, pitch = notes(32, 12)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(wave), pitch)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f} at scale {scaler.get_scale():g}")
    print(f"final {loss.item():.4e}")
