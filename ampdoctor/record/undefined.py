"""A loss that is not finite, of finite values: does its graph hold an operation that no format gives a value to?

The loss is often computed by a line or two outside any module, and a bad batch may come once, on a step that nobody
looks at. Before the backward pass the graph still knows what was divided by what. Asked only of losses on the host that
are known to be broken: nothing waits for a device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import operation
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.record.autograd_graph import Node

_MOST_NODES = 20_000
_MEAN = 1
"""torch's number for reduction="mean"."""

_LARGEST_COUNT = 2**24

_HANDS_ON = (
    "Add", "Sub", "Mul", "Div", "Neg", "Sum", "Mean", "Stack", "Cat", "View", "Unsafe", "Squeeze", "Unsqueeze",
    "Expand", "Clone", "ToCopy", "Reshape", "Permute", "Transpose", "T", "Pow", "Sqrt", "Exp", "Log", "Alias",
)  # fmt: skip
"""Operations whose result holds NaN where their inputs do; one that selects may leave it out."""


def undefined_operation(root: torch.Tensor) -> str | None:
    """Return "div", "mean" or the loss that makes `root` NaN or infinite of finite values, in whatever precision.

    "div" is a division by a count of zero, "mean" a mean of nothing; a loss averages over nothing. None where there is
    none, or where values that half precision may have broken or flushed come in.
    """
    for node in _that_hand_on(root.grad_fn):
        name = _undefined(node, root)
        if name is not None and _finite_above(node):
            return name
    return None


def _that_hand_on(root: Node | None) -> Iterator[Node]:
    """Yield the nodes of which nothing that is NaN can fail to reach the root."""
    stack = [root] if root is not None else []
    seen = {id(node): node for node in stack}
    while stack and len(seen) < _MOST_NODES:
        node = stack.pop()
        yield node
        if operation(node).rstrip("0123456789").removesuffix("Backward") in _HANDS_ON:
            new = [n for n, _ in node.next_functions if n is not None and id(n) not in seen]
            seen |= {id(n): n for n in new}
            stack += new


def _undefined(node: Node, root: torch.Tensor) -> str | None:
    name = operation(node).rstrip("0123456789").removesuffix("Backward")
    if name == "Div":
        divisor = _saved(node, "other")
        return "div" if divisor is not None and _is_count_of_zero(divisor, root) else None
    if name == "Mean":
        return "mean" if _averages_nothing(node) else None
    if getattr(node, "_saved_reduction", None) != _MEAN:
        return None
    total, values = _saved(node, "total_weight"), _saved(node, "self")
    empty = bool(total == 0) if total is not None and total.numel() == 1 else values is not None and not values.numel()
    return _snake_case(name) if empty else None


def _is_count_of_zero(divisor: torch.Tensor, root: torch.Tensor) -> bool:
    """Whether it holds whole numbers and a zero among them: the size of a mask, say, and nothing that was flushed.

    Of a zero alone that can't be told. There the loss must be NaN, and the dividend zero as well: a sum of nothing.
    """
    if divisor.is_complex() or not divisor.numel() or divisor.dtype is torch.bool:
        return False
    whole = bool(((divisor == divisor.floor()) & (divisor >= 0) & (divisor < _LARGEST_COUNT)).all())
    zeros = int((divisor == 0).sum())
    return whole and zeros > 0 and (zeros < divisor.numel() or math.isnan(float(root.detach())))


def _averages_nothing(node: Node) -> bool:
    if getattr(node, "_saved_self_sym_numel", None) == 0:
        return True
    sizes, dims = getattr(node, "_saved_self_sym_sizes", ()), getattr(node, "_saved_dim", None)
    return any(not sizes[dim] for dim in _signed(dims, len(sizes))) if dims else False


def _signed(dims: Any, rank: int) -> list[int]:
    """Return the dimensions as indices: autograd keeps negative ones as numbers without a sign."""
    return [d for dim in dims if -rank <= (d := dim - 2**64 if dim >= 2**63 else dim) < rank]


def _finite_above(node: Node) -> bool:
    """Whether everything that autograd keeps of what went into the node is finite."""
    stack = [n for n, _ in node.next_functions if n is not None]
    seen = {id(n): n for n in stack}
    while stack:
        above = stack.pop()
        if len(seen) > _MOST_NODES or not all(bool(torch.isfinite(t).all()) for t in _all_saved(above)):
            return False
        new = [n for n, _ in above.next_functions if n is not None and id(n) not in seen]
        seen |= {id(n): n for n in new}
        stack += new
    return True


def _all_saved(node: Node) -> Iterator[torch.Tensor]:
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            tensor = _saved(node, name.removeprefix("_raw_saved_"), halves=True)
            if tensor is not None:
                yield tensor


def _saved(node: Node, name: str, *, halves: bool = False) -> torch.Tensor | None:
    """Return a plain tensor on the host that the node keeps; None for everything else, half tensors with it."""
    try:
        # Hooks on what was saved (checkpointing, offloading) would run: recompute a whole block, for instance.
        raw = getattr(node, f"_raw_saved_{name}", None)
        if raw is None or getattr(raw, "unpack_hook", None) is not None:
            return None
        tensor: Any = getattr(node, f"_saved_{name}", None)
    except RuntimeError:  # freed, or changed in place since
        return None
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter} or tensor.device.type != "cpu":
        return None
    plain = tensor.layout is torch.strided and not tensor.is_quantized
    return tensor.detach() if plain and (halves or tensor.dtype not in HALVES) else None


def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
