"""Ratios of likelihoods in a loss, exp(new - old) with an `old` that carries no gradient: PPO and its kin.

Before any update new and old are the same, and the ratio is 1. By how much it is not is read from what autograd saved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import CAST, SITE, operation
from ampdoctor.record.stats import measurable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.autograd_graph import Node

_BETWEEN = frozenset(
    {
        "ClampBackward0", "ClampBackward1", "ClampMinBackward0", "ClampMaxBackward0", "SumBackward0", "SumBackward1",
        "MeanBackward0", "MeanBackward1", "MulBackward0", "DivBackward0", "ViewBackward0", "ReshapeAliasBackward0",
        "SqueezeBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "ExpandBackward0", "NegBackward0", CAST,
    }
)  # fmt: skip
"""What may stand between the difference and its exponential: a clamp, the mean over a sequence, a mask."""

_DEPTH = 8
_MAX_NODES = 500


def ratio_error(roots: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the largest |r - 1| of the ratios in the losses `roots`; None where there are none.

    Not looked at is what modules compute: the exponential of a softmax written by hand looks the same.
    """
    ratios = [r for node in _outside_modules(roots) if (r := _ratio(node)) is not None]
    if not ratios:
        return None
    with torch.no_grad():
        return torch.stack([(r.detach().double() - 1.0).abs().max() for r in ratios]).max()


def _outside_modules(roots: Iterable[torch.Tensor]) -> list[Node]:
    stack: list[Node] = [t.grad_fn for t in roots if t.grad_fn is not None]
    seen = {id(node): node for node in stack}
    found: list[Node] = []
    while stack and len(seen) < _MAX_NODES:
        node = stack.pop()
        if SITE in node.metadata and not _is_loss(node):
            continue
        found.append(node)
        for parent, _ in node.next_functions:
            if parent is not None and id(parent) not in seen:
                seen[id(parent)] = parent
                stack.append(parent)
    return found


def _is_loss(node: Node) -> bool:
    """Whether a module's output is a single number, as that of a criterion is."""
    made: Any = getattr(node, "_input_metadata", ())
    return len(made) > 0 and math.prod(made[0].shape) == 1


def _ratio(node: Node) -> torch.Tensor | None:
    if operation(node) != "ExpBackward0" or not _is_of_difference(node):
        return None
    try:
        if getattr(node._raw_saved_result, "unpack_hook", None) is not None:
            return None  # a hook of the user's would run
        result: torch.Tensor | None = node._saved_result
    except RuntimeError:  # freed by a pass before
        return None
    if result is None or not measurable(result) or result.is_complex():
        return None
    return result if result.numel() else None


def _is_of_difference(node: Node) -> bool:
    """Whether what `node` is the exponential of was a difference to something without a gradient."""
    for _ in range(_DEPTH):
        parents = [n for n, _ in node.next_functions if n is not None]
        if len(parents) != 1:
            return False
        node = parents[0]
        if operation(node) == "SubBackward0":
            real = sum(n is not None for n, _ in node.next_functions)
            return real == 1 and len(node.next_functions) == 2
        if operation(node) not in _BETWEEN:
            return False
    return False
