"""What findings about the order of calls say of optimizers and steps, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def type_of(run: Run, optimizer: str) -> str:
    """Return the class of the optimizer called `optimizer` in the trace; `the optimizer` where it is not known."""
    return next((o.type for o in run.optimizers if o.optimizer == optimizer), "the optimizer")


def variable_of(run: Run, optimizer: str) -> str:
    """Return what to call the optimizer in code: `optimizer`, or its name where there are several."""
    several = len({o.optimizer for o in run.optimizers}) > 1
    return optimizer if several else "optimizer"
