"""Which optimizer trains a module, and what its class is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OptimizerRow


def optimizer_groups(run: Run, module: str | None = None) -> tuple[OptimizerRow, ...]:
    """Return the groups of the optimizer that trains `module`: of the one that steps first where that is not known."""
    own = _by_module(run).get(module) if module is not None else None
    groups = tuple(g for g in run.optimizers if g.optimizer == own)
    return groups or tuple(g for g in run.optimizers if g.optimizer == run.optimizers[0].optimizer)


def class_name(kind: str) -> str:
    """Return the last part of the name of an optimizer's class."""
    return kind.rpartition(".")[2]


@once_per_run
def _by_module(run: Run) -> dict[str, str]:
    return {m.module: m.optimizer for m in reversed(run.modules) if m.optimizer}
