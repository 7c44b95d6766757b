"""What is asked of each module and each output of an examined step, made ready for as many calls as a step has."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ampdoctor.record.sites import parts
from ampdoctor.record.tensors import autocast_dtype, dtype_name
from ampdoctor.trace.schema import ModuleRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.guard import Guard
    from ampdoctor.record.log import Values
    from ampdoctor.record.optimizer import OptimizerNames
    from ampdoctor.record.tensor_log import Context, TensorLog

TRAINING = "training"
"""The kind of a call whose output may have a gradient."""


class Armed(Protocol):
    """Who records the step at hand: `ModuleHooks`."""

    tensors: TensorLog | None


class ModuleSite:
    """A module that was called, and what its tensors are called."""

    __slots__ = ("gradient", "module", "output", "path")

    def __init__(self, module: nn.Module, path: str) -> None:
        self.module = weakref.ref(module)
        self.path = path
        self.output = path, "activation", "out"
        self.gradient = path, "grad_output", "out"


class GradientHook:
    """Records the gradient of one output."""

    __slots__ = ("_context", "_guard", "_hooks", "_site", "_tensors")

    __torch_unserializable__ = True
    """Saving an output to a file would otherwise warn about a hook that the user never set."""

    def __init__(
        self, hooks: Armed, guard: Guard, tensors: TensorLog, site: tuple[str, str, str], context: Context
    ) -> None:
        self._hooks, self._guard, self._tensors = hooks, guard, tensors
        self._site, self._context = site, context

    def __call__(self, gradient: torch.Tensor) -> None:
        """Autograd has made the gradient."""
        with self._guard:
            # The hook of a released step must find nothing to do: its graph may live longer than the step.
            tensors = self._tensors
            if self._hooks.tensors is not tensors:
                return
            scale = tensors.log.pass_scale
            if tensors.add_few([gradient], [self._site], [self._context], scale=scale) is None:
                tensors.add(gradient, self._site, scale=scale, context=self._context)


def own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a module, not of those within it, that have a size by now."""
    own = parts(module, "_parameters").values()
    return [p for p in own if p is not None and (type(p) is nn.Parameter or not is_lazy(p))]


def kind_of_call() -> str:
    """Return what kind of call is under way: of those without gradients there may be several in a step."""
    if torch.is_grad_enabled():
        return TRAINING
    return autocast_dtype("cuda") or autocast_dtype("cpu") or "float32"


def module_row(module: nn.Module, path: str, step: int, optimizers: OptimizerNames) -> Callable[[Values], ModuleRow]:
    """Return what makes the row of a module that is called."""
    training = bool(vars(module).get("training"))

    def build(_: Values) -> ModuleRow:
        """Made once the step is over: the optimizer is known by then, and lazy parameters have a size."""
        own = own_parameters(module)
        return ModuleRow(
            step=step,
            module=path,
            type=type(module).__name__,
            leaf=not parts(module, "_modules"),
            parameters=sum(p.numel() for p in own),
            trainable=sum(p.numel() for p in own if p.requires_grad),
            dtypes=sorted({dtype_name(p.dtype) for p in own}),
            optimizer=next((o for p in own if (o := optimizers.owner(p))), None),
            training=training,
            device=own[0].device.type if own else None,
        )

    return build
