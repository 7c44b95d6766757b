"""A function run with local twins beside it, and the rows that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.log import StepLog
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from torch import nn

    from ampdoctor.trace.schema import OpRow
    from tests.record.twin.training import Parameters

HALF, BRAIN = torch.float16, torch.bfloat16


def half(*values: float) -> torch.Tensor:
    """Return FP16 numbers."""
    return torch.tensor(values, dtype=HALF)


def brain(*values: float) -> torch.Tensor:
    """Return BF16 numbers."""
    return torch.tensor(values, dtype=BRAIN)


@dataclass
class Locally:
    """Local twins, followed by modules once `follow` is told of them; also an observer of a training step."""

    log: StepLog = field(default_factory=lambda: StepLog(7, "test"))
    places: Places = field(default_factory=lambda: Places(lines=True))
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.twins = LocalTwins(self.log)
        self.mode = TwinMode([self.twins], self.places, self.errors.append)

    def follow(self, model: nn.Module) -> None:
        """Tell the places of the modules of `model`."""
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda _, __, p=path: self.places.enter(p))
            module.register_forward_hook(lambda _, __, ___, p=path: self.places.leave(p), always_call=True)

    def rows(self) -> list[OpRow]:
        """Return the rows of the step, which is over."""
        assert self.errors == []
        self.twins.finish()
        return [row for table, row in self.log.finish(self.log.depart()).rows if table == "ops"]

    def during(self) -> contextlib.AbstractContextManager[object]:
        """See every operation."""
        return self.mode

    def before_optimizer(self, optimizer: Any, parameters: Parameters) -> None:
        """Go on: the optimizer's operations are of interest."""

    def after_optimizer(self, optimizer: Any, parameters: Parameters) -> None:
        """Nothing more to see."""


def rows_of(function: Callable[[], Any], op: str | None = None) -> list[OpRow]:
    """Return the rows of what `function` does, or those of one operation."""
    locally = Locally()
    with locally.mode:
        function()
    assert dict(locally.twins.not_twinned) == {}
    return [row for row in locally.rows() if op in {None, row.op.removeprefix("aten.")}]


def row_of(function: Callable[[], Any], op: str | None = None) -> OpRow:
    """Return the only row of what `function` does."""
    rows = rows_of(function, op)
    assert len(rows) == 1, rows
    return rows[0]
