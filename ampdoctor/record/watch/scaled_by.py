"""Where in a loss's graph a framework multiplies by its loss scale."""

from __future__ import annotations

from typing import Any

import torch

from ampdoctor.record.autograd_graph import CAST, Node, operation

_DEPTH = 32
_MUL = "MulBackward0"
_BEFORE_IT = frozenset({_MUL, "DivBackward0", "NegBackward0", "ViewBackward0", "SumBackward0", CAST})
"""What may come after the scale has been put in: a mean over micro-batches, for instance."""


def scaled_by(root: Node | None, scale: Any) -> Node | None:
    """Return the node that multiplies by `scale`, a number or a tensor; None where there is none."""
    node = root
    for _ in range(_DEPTH):
        if node is None or operation(node) not in _BEFORE_IT:
            return None
        if operation(node) == _MUL and any(_is(factor, scale) for factor in _factors(node)):
            return node
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return None


def _factors(node: Node) -> list[torch.Tensor]:
    """Return what the node has saved of its factors: of those that need no gradient, the other's derivative."""
    found = []
    for name in ("self", "other"):
        try:
            # Hooks on what was saved (checkpointing, offloading) would run.
            if getattr(getattr(node, f"_raw_saved_{name}", None), "unpack_hook", None) is None:
                found.append(getattr(node, f"_saved_{name}"))
        except RuntimeError:  # freed by a pass before
            continue
    return [factor for factor in found if isinstance(factor, torch.Tensor) and factor.numel() == 1]


def _is(factor: torch.Tensor, scale: Any) -> bool:
    """Whether it is the scale: the same memory, or the same number where that is on the host."""
    if isinstance(scale, torch.Tensor):
        return factor.device == scale.device and factor.data_ptr() == scale.data_ptr()
    return factor.device.type == "cpu" and not factor.is_complex() and float(factor) == scale
