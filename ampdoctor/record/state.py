"""What the parts of the recorder share while a step runs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import capturing
from ampdoctor.record.quiet import in_tracing_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.guard import Guard
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.optimizer import OptimizerNames, WeightExaminer
    from ampdoctor.record.sites import Sites
    from ampdoctor.record.tensors import TensorLog
    from ampdoctor.record.twin.opinions import SecondOpinions
    from ampdoctor.record.twin.second_opinion import SecondOpinion


@dataclass
class State:
    """The step at hand and the things that outlive it.

    Attributes:
        active: recording; False once stopped, failed, or in a forked child.
        log: the step at hand.
        tensors: where its tensors go; None on a step that is not examined.
        opinions: second opinions on single steps.
    """

    guard: Guard
    sites: Sites
    optimizers: OptimizerNames
    weights: WeightExaminer
    active: bool = False
    opinions: SecondOpinions = None  # type: ignore[assignment]
    log: StepLog = None  # type: ignore[assignment]
    tensors: TensorLog | None = None

    @property
    def opinion(self) -> SecondOpinion | None:
        """The second opinion under way on this step, if there is one."""
        return self.opinions.current

    @property
    def replaying(self) -> bool:
        """Whether a failed step is being executed again: none of that is the training's."""
        replays = self.opinions.replays
        return replays is not None and replays.running

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` made safe to call from inside the training: None when off or when it fails."""
        signature = inspect.signature(function)

        def safe(*args: Any, **kwargs: Any) -> Any:
            # Asked first: what torch.compile traces of this is then a constant, without a graph break.
            if torch.compiler.is_compiling() or not self.active or self.replaying or capturing():
                return None
            if in_tracing_mode() or not self.guard.thread.is_this():
                return None
            if not _fits(signature, args, kwargs):
                return None  # nor does the user's call fit torch, which is about to say so
            with self.guard:
                return function(*args, **kwargs)
            return None

        return safe


def _fits(signature: inspect.Signature, args: Any, kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
