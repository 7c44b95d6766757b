"""Keeping the ledger of a training of a test's own, and asking it."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.ledger.look import FIRST

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from ampdoctor.trace.schema import MemoryRow, TimingRow
    from tests.record.recording import Recording

STEPS = FIRST + 2


@dataclass
class Book:
    """The ledger of one step."""

    memory: list[MemoryRow]
    timings: list[TimingRow]

    def rows(self, phase: str, component: str | None = None) -> list[MemoryRow]:
        """Return the rows of a phase, of all components without one."""
        return [r for r in self.memory if r.phase == phase and component in {None, r.component}]

    def bytes(self, phase: str, component: str, *by: str) -> Any:
        """Return the bytes of a component, by columns where any are named."""
        sizes: Counter[Any] = Counter()
        for row in self.rows(phase, component):
            key = tuple(getattr(row, name) for name in by)
            sizes[key[0] if len(key) == 1 else key] += row.bytes
        return dict(sizes) if by else sum(sizes.values())


def book_of(recording: Recording) -> Book:
    """Return the first ledger of a recorded run."""
    run = recording.run
    step = min(r.step for r in run.memory)
    return Book([r for r in run.memory if r.step == step], [r for r in run.timings if r.step == step])


def keep(
    recording: Recording,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Callable[[], torch.Tensor],
    *,
    half: bool = False,
    loss: Callable[[torch.Tensor], torch.Tensor] = lambda out: out.float().square().mean(),
    micro_batches: int = 1,
) -> Book:
    """Train under the recorder and return the ledger; `half` puts the model, and not the loss, under BF16 autocast."""
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(micro_batches):
                x = batch()
                with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
                    out = model(x)
                loss(out).backward()
                del out  # of a micro-batch that is over it would be counted beside the next one's
            optimizer.step()
    return book_of(recording)
