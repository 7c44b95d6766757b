"""Trainings of the cases, recorded as a whole, and what the second opinion wrote of them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ampdoctor.record.recorder import Recorder
from ampdoctor.trace.run import Run, open_run
from ampdoctor.trace.writer import prepare_folder
from tests.record.training import Outcome
from tests.record.twin.training import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

    from ampdoctor.trace.schema import TwinRow, TwinStepRow
    from tests.record.twin.setting import Setting
    from tests.record.twin.training import Case, Parameters

EARLY = 2
"""The step that gets the first second opinion."""


@dataclass
class Watching(Observer):
    """Keeps the gradients of each step as they are before the optimizer."""

    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def before_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Copy them."""
        self.gradients.append({
            n: p.grad.detach().clone() for n, p in parameters.items() if p.grad is not None
        })  # fmt: skip


def trained(case: Case, setting: Setting, steps: int) -> tuple[Outcome, Watching]:
    """Train `steps` steps of `case`; returns everything to the bit."""
    training, watching = case.start(0), Watching()
    losses = [training.run_step(setting, watching) for _ in range(steps)]
    parameters = {n: p.detach().clone() for n, p in training.parameters.items()}
    return Outcome.of(losses=losses, gradients=watching.gradients, weights=parameters), watching


@contextlib.contextmanager
def recording(folder: Path, **settings: Any) -> Iterator[Recorder]:
    """Record what runs inside; errors of ours raise."""
    prepare_folder(folder)
    with Recorder(folder, strict=True, **settings) as recorder:
        yield recorder


def recorded(folder: Path, train: Callable[[], Any], **settings: Any) -> tuple[Any, Run]:
    """Return what `train` returns under a recorder, and the run."""
    with recording(folder, **settings):
        result = train()
    return result, open_run(folder)


def twin_rows(run: Run, role: str, counterfactual: str, step: int = EARLY) -> list[TwinRow]:
    """Return the rows of one role and counterfactual in a step."""
    return [
        r for r in run.twins
        if (r.role, r.counterfactual, r.step) == (role, counterfactual, step)
    ]  # fmt: skip


def opinion(run: Run, step: int = EARLY) -> TwinStepRow:
    """Return the one second opinion of a step."""
    (row,) = [r for r in run.twin_steps if r.step == step and r.kind != "replay"]
    return row
