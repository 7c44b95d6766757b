"""Where a run is told besides the terminal: one module per experiment tracker, found by itself.

A sink gets the numbers of each step, each finding once, and the diagnosis. In a training script it is one line:

    with ampdoctor.watch(model, sinks=[TensorBoardSink("logs")]):

A module of this package that has a function `for_export(where, name) -> Sink` is known to `ampdoctor export --to` by
its name. Trackers are imported when a sink is made, and not before.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor.sinks.base import Sink, StepMetrics
from ampdoctor.sinks.mlflow import MlflowSink
from ampdoctor.sinks.tensorboard import TensorBoardSink
from ampdoctor.sinks.wandb import WandbSink

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MlflowSink", "Sink", "StepMetrics", "TensorBoardSink", "WandbSink", "find_sink", "known_sinks"]


@cache
def known_sinks() -> dict[str, Callable[[str, str], Sink]]:
    """Return what makes a sink for a recorded run, by the name of the tracker."""
    modules = {m.name: import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
    return {name: module.for_export for name, module in modules.items() if hasattr(module, "for_export")}


def find_sink(name: str) -> Callable[[str, str], Sink]:
    """Return what makes a sink for the tracker called `name`, given where to write and what to call the run.

    Raises:
        AmpDoctorError: no such tracker; the hint lists those there are.
    """
    try:
        return known_sinks()[name]
    except KeyError:
        raise AmpDoctorError(f"unknown tracker {name!r}", hint="known trackers: " + ", ".join(known_sinks())) from None
