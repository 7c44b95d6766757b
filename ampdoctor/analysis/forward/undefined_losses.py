"""Losses that no format gives a value to, as their graphs told before the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.forward.nan_births import DIVISION, EMPTY
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.nan_births import Kind
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


@dataclass(frozen=True)
class UndefinedLoss:
    """The backward passes that began from such losses, in order."""

    calls: tuple[CallRow, ...]

    @property
    def first(self) -> CallRow:
        """The first of them."""
        return self.calls[0]

    @property
    def kind(self) -> Kind:
        """What happened, and what to write instead."""
        return DIVISION if self.first.undefined == "div" else EMPTY

    @property
    def source(self) -> str | None:
        """`file:line` of the call of backward."""
        return source_of(self.first)

    def evidence(self) -> list[Evidence]:
        """Return what was seen of the graph."""
        what = {"div": "a division by a count of zero", "mean": "a mean of nothing"}.get(
            self.first.undefined or "", f"`{self.first.undefined}` over nothing"
        )
        text = (
            f"The graph of the loss of step {self.first.step} holds {what}, and all that autograd has kept of what "
            f"goes into it is finite. So it was on {counted(len(self.calls), 'step')} that somebody looked at."
        )
        return [Evidence("undefined_losses", len(self.calls), text)]


def undefined_loss(run: Run) -> UndefinedLoss | None:
    """Return what makes losses of `run` NaN in every format; None where nothing is known to."""
    calls = tuple(call for call in calls_named(run, "backward") if call.undefined is not None)
    return UndefinedLoss(calls) if calls else None
