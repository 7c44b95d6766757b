"""The kept calls of root modules executed again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.callsite import shortened
from ampdoctor.record.twin.replay.root_call import handed_in, outputs_of

if TYPE_CHECKING:
    from ampdoctor.record.twin.mode import TwinMode
    from ampdoctor.record.twin.replay.places import ReplayPlaces
    from ampdoctor.record.twin.replay.root_call import Output, RootCall
    from ampdoctor.record.twin.replay.surroundings import Autocast


class NotTheSameError(Exception):
    """What was executed is not what the run has executed; the message says what differs."""


class ForwardAgain:
    """Executes calls with the inputs, the random numbers and the autocast of before.

    Attributes:
        results: what each call has returned, by id.
        inputs: inputs of calls that gradients are computed for.
        confirmed: every output so far was the same; None before there was one.
    """

    def __init__(self, mode: TwinMode, places: ReplayPlaces) -> None:
        self._mode, self._places = mode, places
        self.results: dict[int, list[torch.Tensor] | None] = {}
        self.inputs: list[torch.Tensor] = []
        self.confirmed: bool | None = None

    def execute(self, calls: list[RootCall]) -> None:
        """Execute those of `calls` that have not been, in order.

        Raises:
            NotTheSameError: an output differs.
        """
        autocast: Autocast | None = None
        with contextlib.ExitStack() as stack:
            for call in calls:
                if id(call) in self.results:
                    continue
                # Calls in one region share the casts of their weights, as those of one pass nearly always did.
                if call.autocast != autocast:
                    stack.close()
                    stack.enter_context(call.autocast.in_force())
                    autocast = call.autocast
                self._execute(call)

    def outputs(self, call: RootCall) -> list[tuple[torch.Tensor, Output]]:
        """Return the outputs that gradients may come back to."""
        tensors = self.results.get(id(call)) or []
        return [(tensors[output.index], output) for output in call.outputs]

    def drop(self, calls: list[RootCall]) -> None:
        """Let go of results that nobody asks for any more."""
        for call in calls:
            if id(call) in self.results:
                self.results[id(call)] = None

    def release(self) -> None:
        """Let go of everything."""
        self.results.clear()
        self.inputs.clear()

    def _execute(self, call: RootCall) -> None:
        module = call.root.module()
        if module is None:
            raise NotTheSameError("the module is gone")
        args, kwargs = handed_in((call.args, call.kwargs), lambda t: self._input(call, t))
        with torch.no_grad():
            for ref, values in call.moving:
                if (buffer := ref()) is not None:
                    buffer.copy_(values)
        call.randomness.put_back()
        self._places.source = shortened(call.source)
        with self._mode:
            result: Any = module(*args, **kwargs)
        tensors = self.results[id(call)] = outputs_of(result)
        self._confirm(call, tensors)

    def _input(self, call: RootCall, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor to hand in: where an earlier call has made it, that call's output, with its history."""
        if id(tensor) in call.links:
            maker, output = call.links[id(tensor)]
            made = self.results.get(id(maker))
            if made is not None:
                own = made[output.index]
                return own if tensor.requires_grad else own.detach()
        if tensor.requires_grad:
            self.inputs.append(tensor)
        return tensor

    def _confirm(self, call: RootCall, tensors: list[torch.Tensor]) -> None:
        for output in call.outputs:
            same = output.index < len(tensors) and output.came_out_again(tensors[output.index])
            if not same:
                self.confirmed = False
                kind = type(call.root.module()).__name__
                raise NotTheSameError(
                    f"the step did not come out the same again: output {output.index} of {kind} differs"
                )
        if call.outputs:
            self.confirmed = self.confirmed is not False
