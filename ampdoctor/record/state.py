"""What the parts of the recorder share while a step runs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autocast_blocks import AutocastBlocks
from ampdoctor.record.headroom import capturing
from ampdoctor.record.held_graphs import HeldGraphs
from ampdoctor.record.quiet import in_tracing_mode
from ampdoctor.record.weight_casts import WeightCasts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.guard import Guard
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.looks import Looks
    from ampdoctor.record.modules import ModuleHooks
    from ampdoctor.record.optimizer import OptimizerNames, WeightExaminer
    from ampdoctor.record.sites import Sites
    from ampdoctor.record.tensor_log import TensorLog
    from ampdoctor.record.twin.opinions import SecondOpinions
    from ampdoctor.record.twin.second_opinion import SecondOpinion
    from ampdoctor.record.working_copies import WorkingCopies


@dataclass
class State:
    """The step at hand and the things that outlive it.

    Attributes:
        active: recording; False once stopped, failed, or in a forked child.
        log: the step at hand.
        tensors: where its tensors go; None on a step that is not examined.
        blocks: the autocast blocks that the training thread is in.
        casts: which half copies of weights are older than the weights.
        held_graphs: losses of earlier steps that still have their graphs.
        opinions: second opinions on single steps.
        looks: those who look on at operations beside second opinions.
        modules: the hooks of an examined step.
        copies: half weights whose masters are trained.
    """

    guard: Guard
    sites: Sites
    optimizers: OptimizerNames
    weights: WeightExaminer
    active: bool = False
    opinions: SecondOpinions = None  # type: ignore[assignment]
    looks: Looks = None  # type: ignore[assignment]
    modules: ModuleHooks | None = None
    copies: WorkingCopies = None  # type: ignore[assignment]
    log: StepLog = None  # type: ignore[assignment]
    tensors: TensorLog | None = None
    blocks: AutocastBlocks = field(default_factory=AutocastBlocks)
    casts: WeightCasts = field(default_factory=WeightCasts)
    held_graphs: HeldGraphs = field(default_factory=HeldGraphs)

    @property
    def opinion(self) -> SecondOpinion | None:
        """The second opinion under way on this step, if there is one."""
        return self.opinions.current

    @property
    def replaying(self) -> bool:
        """Whether a failed step is being executed again: none of that is the training's."""
        replays = self.opinions.replays
        return replays is not None and replays.running

    def guarded(self, function: Callable[..., Any], *, claim: bool = True) -> Callable[..., Any]:
        """Return `function` made safe to call from inside the training: None when off or when it fails.

        Without `claim`, a call of it doesn't make its thread the one whose training is followed: what it watches is
        done before the training too, and perhaps by another thread.
        """
        signature = inspect.signature(function)
        fits: dict[tuple[Any, ...], bool] = {}  # by number of arguments and keywords, on which alone it depends

        def safe(*args: Any, **kwargs: Any) -> Any:
            # Asked first: what torch.compile traces of this is then a constant, without a graph break.
            if torch.compiler.is_compiling() or not self.active or self.replaying or capturing():
                return None
            if in_tracing_mode() or not self.guard.thread.is_this(claim=claim):
                return None
            given = len(args), *kwargs
            if given not in fits:
                fits[given] = _fits(signature, args, kwargs)
            if not fits[given]:
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
