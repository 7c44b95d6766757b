"""The trainings that are timed: a model, a precision, and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.overhead import models

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("fp32", *HALVES)
SCALE = 2.0**10
"""First loss scale: none of the models overflows at it, so that no step is skipped."""

BATCHES = 16
"""Batches that come round: with fewer the loss stands still from step to step as it never does in earnest."""


Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """A model and the data for it.

    Attributes:
        model: makes it.
        data: makes a batch of a size: inputs and classes.
        sizes: of a batch, by scale; small ones keep a step on a CPU well under a second.
        what: what a batch is, with places for its size.
        recording: steps of a whole recording.
        block: steps of a block.
    """

    model: Callable[[], nn.Module]
    data: Callable[..., Batch]
    sizes: dict[str, tuple[int, ...]]
    what: str
    recording: int
    block: int


def _texts(rows: int, length: int) -> Batch:
    words = torch.randint(models.WORDS, (rows, length + 1))
    return words[:, :-1].contiguous(), words[:, 1:].flatten()


def _images(rows: int) -> Batch:
    return torch.randn(rows, 3, 32, 32), torch.randint(10, (rows,))


def _vectors(rows: int) -> Batch:
    return torch.randn(rows, 64), torch.randint(64, (rows,))


WORKLOADS = {
    "transformer": Workload(
        models.transformer, _texts, {"small": (1, 32), "full": (8, 128)}, "{} x {} words", recording=100, block=4
    ),
    "cnn": Workload(models.cnn, _images, {"small": (2,), "full": (32,)}, "{} images of 32x32", recording=100, block=4),
    "mlp": Workload(models.mlp, _vectors, {"small": (64,), "full": (64,)}, "{} x 64", recording=500, block=8),
}


def default_device() -> str:
    """Return where the trainings run."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    """Wait until the device has done all that was asked of it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Training:
    """A training under way.

    Args:
        workload: a name in `WORKLOADS`.
        precision: fp32, bf16 under autocast, or fp16 under autocast with a scaler.
        scale: small or full.
    """

    def __init__(self, workload: str, precision: str, scale: str) -> None:
        torch.manual_seed(0)
        found = WORKLOADS[workload]
        self.device = default_device()
        self.half = HALVES.get(precision)
        self.model = found.model().to(self.device)
        batches = [found.data(*found.sizes[scale]) for _ in range(BATCHES)]
        self.batches = [(x.to(self.device), y.to(self.device)) for x, y in batches]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler(self.device, init_scale=SCALE, enabled=precision == "fp16")
        self.steps = 0
        self.loss = torch.zeros(())

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.model.parameters())

    def leaves(self) -> dict[str, nn.Module]:
        """Return the modules that hold no others, by name."""
        return {name: module for name, module in self.model.named_modules() if name and not any(module.children())}

    def compute(self) -> None:
        """Run forward and backward."""
        inputs, classes = self.batches[self.steps % BATCHES]
        self.steps += 1
        self.optimizer.zero_grad()
        with torch.autocast(self.device, dtype=self.half or torch.bfloat16, enabled=self.half is not None):
            loss = F.cross_entropy(self.model(inputs), classes)
        self.scaler.scale(loss).backward()
        self.loss = loss.detach()

    def update(self) -> None:
        """Let the optimizer take its step."""
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def step(self) -> None:
        """Run a whole step."""
        self.compute()
        self.update()
