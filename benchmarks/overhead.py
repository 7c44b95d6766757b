"""What recording costs: steps with the recorder against bare steps, side by side in one run.

Blocks of bare and of recorded steps of the same training alternate, so that whatever else the machine does falls on
both. Reported are medians of the ratios of neighbouring blocks; absolute times are there for orientation only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = 1 << 40
MODES: dict[str, int | None] = {"vitals": NEVER, "default": None, "every step": 1}
"""`--every` of each mode; vitals examines the first steps of a block only, which are run before the clock starts."""


@dataclass
class Training:
    """A training to be timed: one call is one step."""

    name: str
    step: Callable[[], None]


def transformer() -> nn.Module:
    """Return a small encoder: 6 layers, 256 wide."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(256, 256))


def cnn() -> nn.Module:
    """Return a small ResNet-like stack."""
    blocks = [
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True)) for _ in range(8)
    ]
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *blocks)


def deep_mlp() -> nn.Module:
    """Return many tiny layers, where the cost per hook shows."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(100)])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (transformer, (8, 64, 256)),
    "cnn": (cnn, (8, 3, 32, 32)),
    "deep mlp": (deep_mlp, (64, 64)),
}


def training(name: str, precision: str) -> Training:
    """Return the training of a model in fp32, or under bf16 autocast."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    make, shape = MODELS[name]
    model, data = make().to(device), torch.randn(shape, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            output = model(data)
        F.mse_loss(output.float(), torch.zeros_like(output, dtype=torch.float32)).backward()
        optimizer.step()

    return Training(f"{name}, {precision}", step)


def seconds_per_step(step: Callable[[], None], steps: int) -> float:
    """Time `steps` steps."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def ratio(bench: Training, every: int | None, blocks: int, steps: int) -> tuple[float, float]:
    """Return the median ratio of recorded to bare steps, and the median bare milliseconds."""
    ratios, bare_times = [], []
    with tempfile.TemporaryDirectory() as folder:
        for block in range(blocks):
            bare = seconds_per_step(bench.step, steps)
            run = Path(folder) / str(block)
            run.mkdir()
            with Recorder(run, every=every):
                if every == NEVER:
                    seconds_per_step(bench.step, 3)
                recorded = seconds_per_step(bench.step, steps)
            ratios.append(recorded / bare)
            bare_times.append(1e3 * bare)
    return statistics.median(ratios), statistics.median(bare_times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="steps of a block")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| training | bare ms | " + " | ".join(MODES) + " |")
    print("|---|---:|" + "---:|" * len(MODES))
    for name in MODELS:
        for precision in ("fp32", "bf16"):
            bench = training(name, precision)
            seconds_per_step(bench.step, 3)
            found = [ratio(bench, every, options.blocks, options.steps) for every in MODES.values()]
            cells = " | ".join(f"{r:.2f}x" for r, _ in found)
            print(f"| {bench.name} | {found[0][1]:.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
