"""What is kept of the step at hand in order to execute it again: references, and the state of the generators.

Nothing is copied but a few elements of each output, nothing waits for the device, and nothing outlives the step. Of
roots that are never executed again nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils.hooks import unserializable_hook

from ampdoctor.record.callsite import full_call_site
from ampdoctor.record.quiet import in_backward, traced
from ampdoctor.record.twin.replay.arrived import Cast, Wide
from ampdoctor.record.twin.replay.budget import Budget
from ampdoctor.record.twin.replay.cast_above import CastsAbove, note_output
from ampdoctor.record.twin.replay.class_calls import ClassCalls
from ampdoctor.record.twin.replay.refusals import Refusals
from ampdoctor.record.twin.replay.root_call import Inputs, Output, RootCall, outputs_of, takes_gradients
from ampdoctor.record.twin.replay.roots import Root, can_be_followed
from ampdoctor.record.twin.replay.surroundings import Autocast, Randomness
from ampdoctor.record.twin.replay.tensor_places import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from ampdoctor.record.guard import Guard

_MOST_CALLS = 64
_MOST_BYTES = 256 << 20


class Safe(Protocol):
    """What makes a function safe to call from inside the training; `State` is one."""

    guard: Guard

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` made safe."""


class RootCalls:
    """Keeps the calls of the root modules of the step at hand, and the gradients that came back to their outputs.

    The root modules are found in examined steps, by `met` and `left`; afterwards their calls are followed by
    themselves.

    Args:
        safe: makes what runs inside the training safe.
        most_bytes: the most that inputs and gradients may keep from being freed, or what returns it, asked once a
            step; a step that needs more is not kept.

    Attributes:
        calls: the calls of the step, in order.
        passes: autocast around each backward pass.
        why_not: why the step can't be executed again, None where nothing is known against it.
        refused: the roots of which nothing is kept.
        replaying: a step is being executed again: nobody is to record what happens.
    """

    def __init__(self, safe: Safe, most_bytes: float | Callable[[], float] = _MOST_BYTES) -> None:
        self._guard = safe.guard
        self._budget = Budget(most_bytes)
        self._followed = ClassCalls(self._wanted, safe.guarded(self._begin), safe.guarded(self._end))
        self._roots: dict[int, Root] = {}
        self._running: RootCall | None = None
        self._learning = False
        self._pass: int | None = None
        self._casts = CastsAbove(self._arrived_wide)
        self.calls: list[RootCall] = []
        self.passes: list[Autocast] = []
        self.why_not: str | None = None
        self.refused = Refusals()
        self.replaying = False

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all; switching it off lets go of everything."""
        return self._followed.on

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        if not enabled:
            self.forget()
        self._followed.on = enabled

    def met(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A module is about to be called in an examined step: to be told by the global pre-hook, of every module."""
        running = self._running
        if not self._listens() or not torch.is_grad_enabled():
            return
        if running is not None:
            if running.root.module() is module and not self._learning:
                self._learn(running.root, module)
            return
        if self.refused.refuse(module):
            self._drop_refused()
            return
        if self._root_of(module) is not None or not can_be_followed(module):
            return
        if not self._followed.follow(type(module)):
            return
        self._roots = {k: r for k, r in self._roots.items() if r.module() is not None}
        root = self._roots[id(module)] = Root(module)
        call = self._begin(module, args, {})
        if call is not None:
            call.by_hooks = self._learning = True
            root.learn_before()

    def left(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        """It has returned: to be told by the global hook."""
        running = self._running
        if running is None or running.root.module() is not module or self.replaying:
            return
        if self._learning:
            self._learning = False
            running.root.learn_after()
        if running.by_hooks:
            # The pre-hook was not shown them; what the call has changed in them shows in its outcome.
            inputs = Inputs()
            running.kwargs = inputs.keep(kwargs)
            self._take(running, inputs)
            self._end(running, output)

    def backward_begins(self, roots: list[torch.Tensor]) -> None:
        """A backward pass from `roots` is about to run."""
        if not self._listens():
            return
        self._pass = len(self.passes)
        self.passes.append(Autocast.now())
        outputs = [output for call in self.calls for output in call.outputs]
        self._casts.find(roots, outputs)

    def backward_ended(self) -> None:
        """It has run, or was left by an exception."""
        if not self.replaying and not in_backward():
            self._pass = None
            self._casts.release()

    def forget(self) -> None:
        """The step is over: let go of everything."""
        self._casts.release()
        for call in self.calls:
            for output in call.outputs:
                output.close()
        if self._running is not None:
            self._running.root.learn_nothing()
        self.calls.clear()
        self._running, self._learning, self._pass = None, False, None
        self.passes.clear()
        self._budget.clear()
        self.why_not = None

    def remove(self) -> None:
        """Leave everything as it was."""
        self.forget()
        self._roots.clear()
        self.refused.clear()
        self._followed.remove()

    def _listens(self) -> bool:
        """Whether what the training does now is to be kept."""
        known = self.replaying or self.why_not is not None
        return self.enabled and not known and not in_backward()

    def _learn(self, root: Root, module: nn.Module) -> None:
        """A root that is followed is being called in an examined step; it may have become one to be left alone."""
        if self.refused.refuse(module):
            self._refuse(self.refused.reason or "")
            self._drop_refused()
        else:
            self._learning = True
            root.learn_before()

    def _drop_refused(self) -> None:
        self._roots = {
            key: root
            for key, root in self._roots.items()
            if (module := root.module()) is not None and not self.refused.covers(module)
        }

    def _root_of(self, module: nn.Module) -> Root | None:
        root = self._roots.get(id(module))
        return root if root is not None and root.module() is module else None

    def _wanted(self, module: nn.Module) -> bool:
        if self._running is not None or self.why_not is not None or self.replaying:
            return False
        if not torch.is_grad_enabled() or traced():
            return False
        return self._root_of(module) is not None and not in_backward()

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RootCall | None:
        root = self._root_of(module)
        if root is None or self.why_not is not None or not self.enabled:
            return None
        if len(self.calls) >= _MOST_CALLS:
            self._refuse(f"it calls modules more than {_MOST_CALLS} times")
            return None
        inputs = Inputs()
        given = inputs.keep(args), inputs.keep(kwargs)
        randomness = Randomness.now(root.draws, root.devices | inputs.devices)
        call = RootCall(
            root, *given, [], {}, randomness, Autocast.now(), root.weight_versions(), root.moving(), full_call_site(),
        )  # fmt: skip
        self.calls.append(call)
        self._running = call
        self._take(call, inputs)
        return call if self._running is call else None

    def _end(self, call: RootCall, result: Any) -> None:
        if self._running is not call:
            return  # the step has ended meanwhile
        self._running, self._learning = None, False
        for index, tensor in enumerate(outputs_of(result)):
            if takes_gradients(tensor):
                output = Output.of(index, tensor)
                call.outputs.append(output)
                note_output(tensor, output)
                # A released output finds nothing to do: its graph may live longer than the step.
                tensor.register_hook(self._gradient_hook(output))

    def _take(self, call: RootCall, inputs: Inputs) -> None:
        """Add the inputs to those of the call."""
        call.inputs += inputs.kept
        call.fault = call.fault or inputs.fault
        for tensor, _ in inputs.kept:
            made = self._maker_of(tensor)
            if made is not None:
                call.links[id(tensor)] = made
            self._hold(tensor)

    def _maker_of(self, tensor: torch.Tensor) -> tuple[RootCall, Output] | None:
        if tensor.layout is not torch.strided:
            return None
        for call in reversed(self.calls):
            for output in call.outputs:
                if output.place.holds(tensor):
                    return call, output
        return None

    def _gradient_hook(self, output: Output) -> Callable[[torch.Tensor], None]:
        guard = self._guard

        def keep(gradient: torch.Tensor) -> None:
            with guard:
                self._arrived(output, gradient)

        # Saving an output to a file would otherwise warn about a hook that the user never set.
        hook: Callable[[torch.Tensor], None] = unserializable_hook(keep)
        return hook

    def _arrived_wide(self, output: Output, gradient: torch.Tensor, result: torch.Tensor | None) -> None:
        with self._guard:
            if gradient.dtype is torch.float32 and self._takes(output, gradient):
                output.wide[self._pass or 0] = Wide.of(gradient, result)
                self._hold(gradient)

    def _arrived(self, output: Output, gradient: torch.Tensor) -> None:
        if not self._takes(output, gradient):
            return
        number = self._pass or 0
        wide = output.wide.get(number)
        if wide is not None and wide.became(gradient):
            output.gradients[number] = Cast.of(wide.kept, gradient)
        else:
            output.gradients[number] = Kept.of(gradient)
            self._hold(gradient)

    def _takes(self, output: Output, gradient: torch.Tensor) -> bool:
        if output.open and gradient.requires_grad:
            self._refuse("it takes gradients of gradients")
        return output.open and self._pass is not None

    def _hold(self, tensor: torch.Tensor) -> None:
        reason = self._budget.take(tensor)
        if reason is not None:
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        """Keep nothing of this step any more."""
        self.forget()
        self.why_not = reason
