"""Module hooks of an examined step: activations forward, gradients of outputs backward.

The hooks are global ones, so that nothing needs to know the model; they are put in place at a step boundary and taken
off at the next. Only forward hooks are used: `output.register_hook` from inside one leaves every bit of the gradients
as it is, where full backward hooks do not (and break in-place modules).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import unserializable_hook

from ampdoctor.record.autograd_graph import SITE, note
from ampdoctor.record.buffers import record_buffers
from ampdoctor.record.global_hooks import GlobalHooks
from ampdoctor.record.other_threads import OtherThreads
from ampdoctor.record.quiet import in_backward, traced
from ampdoctor.record.sites import parts
from ampdoctor.record.tensor_log import Context
from ampdoctor.record.tensors import autocast_dtype, dtype_name, tensors_in
from ampdoctor.trace.schema import ModuleRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.log import Values
    from ampdoctor.record.state import State
    from ampdoctor.record.tensor_log import TensorLog
    from ampdoctor.record.twin.place import Places

_MAX_CALLS = 8
"""Calls of one module recorded in a step: a recurrent cell called a thousand times repeats itself."""


_MOST_CALLS = 50_000
"""Calls of all modules together that are looked at in a step: those after them repeat it, and each costs time."""


class ModuleHooks:
    """Puts the hooks in place for one step after another."""

    def __init__(self, state: State, failed: Callable[[BaseException], None]) -> None:
        self._state = state
        self._sites, self._optimizers, self._guard = state.sites, state.optimizers, state.guard
        self._hooks = GlobalHooks(self._before, self._after, state.guarded(failed, claim=False))
        self._described: set[str] = set()
        self._tensors: TensorLog | None = None
        self._calls: dict[tuple[str, str], int] = {}
        self._met = 0
        self._elsewhere = OtherThreads(state)
        self._recorded_before_backward: set[str] = set()
        self._places: Places | None = None

    def install(self) -> None:
        """Get ready, without any hook yet."""
        self._hooks.install()

    def remove(self) -> None:
        """Leave everything as it was."""
        self.disarm()
        self._hooks.remove()

    def arm(self, tensors: TensorLog | None, places: Places | None = None) -> None:
        """Record the modules called from now on; `places` is told of each as it begins and ends.

        Without either there is no hook.
        """
        if tensors is None and places is None:
            self.disarm()
            return
        self._tensors, self._places = tensors, places
        self._calls.clear()
        self._met = 0
        self._recorded_before_backward.clear()
        self._hooks.put()

    def disarm(self) -> None:
        """Take every hook off."""
        self._hooks.take_off()
        self._tensors = self._places = None

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._is_none_of_ours():
            return
        with self._guard:
            if not _counts(module):
                return
            if self._tensors is not None:
                if self._state.opinions.replays is not None:
                    self._state.opinions.replays.kept.met(module, args)
                self._places = self._state.opinions.first_call(module) or self._places
            path = self._sites.path(module)
            if self._places is not None:
                self._places.enter(path)
            if self._tensors is not None and self._wanted(path):
                self._record_inputs(self._tensors, module, path, list(tensors_in(args)))

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._is_none_of_ours():
            if self._tensors is not None:
                self._elsewhere.called(module, output)
            return
        with self._guard:
            if not _counts(module):
                return
            path = self._sites.path(module)
            if self._tensors is not None:
                self._record(self._tensors, module, path, (args, kwargs), output)
            if self._places is not None:
                self._places.leave(path)
            self._met += 1
            if self._met >= _MOST_CALLS and self._places is None:
                self._hooks.take_off()

    def _record(self, tensors: TensorLog, module: nn.Module, path: str, given: tuple[Any, ...], output: Any) -> None:
        """Record one call; `given` are its arguments and its named ones."""
        if self._state.opinions.replays is not None:
            self._state.opinions.replays.kept.left(module, given[1], output)
        if self._wanted(path):
            # A global pre-hook is not shown keyword arguments, so those are met here.
            inputs = [*tensors_in(given[0]), *tensors_in(given[1])]
            self._record_inputs(tensors, module, path, inputs)
            self._record_outputs(tensors, module, path, inputs, output)
        self._state.blocks.called(path)

    def _is_none_of_ours(self) -> bool:
        """Whether the call at hand is no plain call of the training that is followed.

        Autograd's threads make the calls of a recomputation; those are nobody's in particular.
        """
        if torch.compiler.is_compiling() or traced() or self._state.replaying:
            return True
        thread = self._guard.thread
        return not in_backward() and not thread.is_this(claim=torch.is_grad_enabled(), by_module=True)

    def _record_inputs(self, tensors: TensorLog, module: nn.Module, path: str, inputs: list[torch.Tensor]) -> None:
        """Record inputs that no module made, before an in-place module can change them."""
        if path not in self._described:
            self._describe(tensors, module, path)
        for index, tensor in enumerate(inputs):
            if tensors.known(tensor) is None and not isinstance(tensor, nn.Parameter):
                tensors.add(tensor, (path, "activation", _slot("in", index)), context=self._context(tensor, path))

    def _record_outputs(
        self, tensors: TensorLog, module: nn.Module, path: str, inputs: list[torch.Tensor], output: Any
    ) -> None:
        sources = self._own_parameters(tensors, module)
        sources += [key for t in inputs if (key := tensors.known(t)) is not None]
        for index, tensor in enumerate(tensors_in(output)):
            if tensors.known(tensor) is not None:
                continue
            context = self._context(tensor, path)
            site = (path, "activation", _slot("out", index))
            if tensors.add(tensor, site, inputs=sources, context=context) is not None:
                self._follow_gradient(tensors, tensor, (path, "grad_output", site[2]), context)
        record_buffers(tensors, module, path)
        self._count(path)

    def _follow_gradient(
        self, tensors: TensorLog, tensor: torch.Tensor, site: tuple[str, str, str], context: Context
    ) -> None:
        if not tensor.requires_grad or tensor.grad_fn is None:
            return
        note(tensor.grad_fn, SITE, site[0])
        # The hook of a released step must find nothing to do: its graph may live longer than the step.
        tensor.register_hook(self._gradient_hook(tensors, site, context))

    def _gradient_hook(
        self, tensors: TensorLog, site: tuple[str, str, str], context: Context
    ) -> Callable[[torch.Tensor], None]:
        def record(gradient: torch.Tensor) -> None:
            with self._guard:
                if self._tensors is tensors:
                    tensors.add(gradient, site, scale=tensors.log.pass_scale, context=context)

        # Saving an output to a file would otherwise warn about a hook that the user never set.
        hook: Callable[[torch.Tensor], None] = unserializable_hook(record)
        return hook

    def _wanted(self, path: str) -> bool:
        """Whether the call at hand is one to record.

        Calls without gradients (evaluation, a frozen teacher, the first pass of reentrant checkpointing) count once
        per step and autocast dtype; the recomputation of checkpointing repeats what was recorded.
        """
        grad = torch.is_grad_enabled()
        if grad and in_backward() and path in self._recorded_before_backward:
            return False
        return self._calls.get((path, _kind()), 0) < (_MAX_CALLS if grad else 1)

    def _count(self, path: str) -> None:
        grad, kind = torch.is_grad_enabled(), _kind()
        self._calls[path, kind] = self._calls.get((path, kind), 0) + 1
        if grad and not in_backward():
            self._recorded_before_backward.add(path)

    def _context(self, tensor: torch.Tensor, path: str) -> Context:
        call = self._calls.get((path, _kind()), 0)
        device = "cpu" if tensor.is_cpu else tensor.device.type
        return Context(call, autocast_dtype(device), torch.is_grad_enabled())

    def _own_parameters(self, tensors: TensorLog, module: nn.Module) -> list[int]:
        keys = []
        for parameter in _own(module):
            key = tensors.known(parameter)
            if key is None:
                path, name = self._sites.parameter(parameter, module)
                key = tensors.add(parameter, (path, "weight", name))
            if key is not None:
                keys.append(key)
        return keys

    def _describe(self, tensors: TensorLog, module: nn.Module, path: str) -> None:
        self._described.add(path)
        training, step = bool(vars(module).get("training")), tensors.log.step

        def build(_: Values) -> ModuleRow:
            """Made once the step is over: the optimizer is known by then, and lazy parameters have a size."""
            own = _own(module)
            return ModuleRow(
                step=step,
                module=path,
                type=type(module).__name__,
                leaf=not parts(module, "_modules"),
                parameters=sum(p.numel() for p in own),
                trainable=sum(p.numel() for p in own if p.requires_grad),
                dtypes=sorted({dtype_name(p.dtype) for p in own}),
                optimizer=next((o for p in own if (o := self._optimizers.owner(p))), None),
                training=training,
                device=own[0].device.type if own else None,
            )

        tensors.log.row("modules", build)


def _own(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in parts(module, "_parameters").values() if p is not None and not is_lazy(p)]


def _kind() -> str:
    """Return what kind of call is under way: of those without gradients there may be several in a step."""
    if torch.is_grad_enabled():
        return "training"
    return autocast_dtype("cuda") or autocast_dtype("cpu") or "float32"


def _counts(module: nn.Module) -> bool:
    # DataParallel makes copies for every forward; they have no name, and the originals are not called.
    return not isinstance(module, torch.jit.ScriptModule) and "_is_replica" not in vars(module)


def _slot(base: str, index: int) -> str:
    return base if index == 0 else f"{base}.{index}"
