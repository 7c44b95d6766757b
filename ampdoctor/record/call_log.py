"""Queues the rows of `calls`: one per call that matters, with the line of the user's code that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.record.callsite import call_site
from ampdoctor.record.held_gradients import holding
from ampdoctor.record.quiet import in_backward
from ampdoctor.record.raised import RaisedErrors
from ampdoctor.record.step_row import summed
from ampdoctor.record.tensors import autocast_dtype
from ampdoctor.trace.schema import CallRow

if TYPE_CHECKING:
    import weakref

    import torch

    from ampdoctor.record.log import Deferred
    from ampdoctor.record.state import State

_NUMBERS = ("norm", "limit", "ratio_error")
"""Columns that may still be on the device when the row is queued."""


class CallLog:
    """The calls of the step at hand, in order."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.raised = RaisedErrors(state.sites)

    def begin(self, call: str, target: str | None = None, **columns: Any) -> dict[str, Any]:
        """Return the columns of a call that is about to be made; `finish` queues them."""
        log, site = self._state.log, call_site()
        return {
            "step": log.step, "micro_batch": log.micro_batch, "seq": log.next_seq(), "call": call, "target": target,
            "file": site.file, "line": site.line, "function": site.function,
            "autocast": autocast_dtype("cuda") or autocast_dtype("cpu"), **columns,
        }  # fmt: skip

    def finish(self, call: dict[str, Any] | None, _: Any = None, error: BaseException | None = None) -> None:
        """Queue the row of a call that has returned or raised."""
        if call is None:
            return
        losses = call.pop("losses", ())
        failed = error is not None
        if error is not None:
            call |= self.raised.columns(error)
        late: dict[str, Deferred] = {name: call.pop(name, None) for name in _NUMBERS}
        held, resized = call.pop("held", None), call.pop("resized", None)
        reached: list[weakref.ref[torch.Tensor]] | None = call.pop("reached", None)

        def build(values: Any) -> CallRow:
            alive = None if reached is None else [leaf for ref in reached if (leaf := ref()) is not None]
            names = None if alive is None else self._state.optimizers.owners(alive)
            numbers = {name: values.number(value) for name, value in late.items()}
            sizes: dict[str, Any] = holding(held, values) if held is not None else {}
            if resized is not None:
                numbers |= resized.columns(values)
            if failed:  # not `error`, which this function would keep alive
                numbers["loss"] = summed(losses, values)
            return CallRow(**call, **numbers, **sizes, optimizers=names)

        self._state.log.row("calls", build)

    def noted(self, error: BaseException) -> None:
        """Queue a row for an exception that passes, unless it has one; what a backward pass raises, it will tell."""
        if not in_backward() and self.raised.is_news(error):
            self.finish(self.begin("exception"), None, error)
