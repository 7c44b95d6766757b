"""Derivatives that torch computes by another formula while a mode is on: there, ours steps aside.

Where somebody may be looking on, torch takes a formula that can be differentiated once more, and that rounds in other
places. The run must not notice us, so these few run without our mode, and their twins are computed afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch

from ampdoctor.record.autograd_graph import nodes, operation
from ampdoctor.record.tensors import autocast_dtype
from ampdoctor.record.twin.storages import NotTwinnable
from ampdoctor.record.twin.threads import LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampdoctor.record.autograd_graph import Node
    from ampdoctor.record.guard import Guard
    from ampdoctor.record.twin.carried import CarriedTwin

_CHANGING: dict[str, Callable[[Node, torch.Tensor], torch.Tensor]] = {
    "ProdBackward0": lambda _, x: x.prod(),
    "ProdBackward1": lambda node, x: x.prod(_signed(node._saved_dim), node._saved_keepdim),
    "CumprodBackward0": lambda node, x: x.cumprod(_signed(node._saved_dim)),
}
"""By node: what it is the derivative of. They were found by running every operation with and without a mode."""


class Formulas:
    """Steps aside in one backward pass after another."""

    def __init__(self, mode: Any, carried: list[CarriedTwin], guard: Guard) -> None:
        self._mode, self._carried, self._guard = mode, carried, guard
        self._handles: list[Any] = []

    def backward_begins(self, roots: Iterable[torch.Tensor]) -> None:
        """Find the nodes that a backward pass from `roots` may run."""
        for node in nodes(roots):
            if operation(node) in _CHANGING:
                hooks = (node.register_prehook(self._step_aside), node.register_hook(self._after(node)))
                self._handles += hooks

    def backward_ended(self) -> None:
        """Leave the graph as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _step_aside(self, _: Any) -> None:
        """Take our mode off; autograd puts the modes back before the next node."""
        modes = []
        while torch._C._len_torch_dispatch_stack():
            modes.append(_python_dispatch._pop_mode())
        for mode in reversed(modes):
            if mode is not self._mode:
                _python_dispatch._push_mode(mode)

    def _after(self, node: Node) -> Callable[[Any, Any], None]:
        name = operation(node)

        def after(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
            with self._guard, LOCK:
                if self._mode.on and inputs[0] is not None and outputs[0] is not None:
                    for carried in self._carried:
                        _follow(carried, node, name, inputs[0], outputs[0])

        return after


def _follow(carried: CarriedTwin, node: Node, name: str, ours: torch.Tensor, given: torch.Tensor) -> None:
    """Give `ours`, the gradient that the node has computed from `given`, its twin."""
    saved = _saved(node)
    try:
        if saved is None or autocast_dtype(saved.device.type) is not None:
            raise NotTwinnable("what the forward has kept is not ours to unpack")
        x, gradient = carried.values(saved), carried.values(given)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (twin,) = torch.autograd.grad(_CHANGING[name](node, leaf), leaf, gradient)
        carried.replace(ours, twin)
    except (NotTwinnable, RuntimeError) as reason:
        if isinstance(reason, torch.cuda.OutOfMemoryError):
            raise
        carried.not_twinned[f"{name}: {str(reason).partition(chr(10))[0][:120]}"] += 1


def _saved(node: Node) -> torch.Tensor | None:
    """Return the input of the forward; None where hooks would run to get it, which may compute a block once more."""
    if getattr(node._raw_saved_self, "unpack_hook", None) is not None:
        return None
    saved: torch.Tensor = node._saved_self
    return saved.detach()


def _signed(dimension: int) -> int:
    """Return a saved dimension, which the node shows as an unsigned number."""
    return dimension - (1 << 64) if dimension >= 1 << 63 else dimension
