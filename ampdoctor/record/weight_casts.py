"""How old the half copies of weights are that a loss was computed from.

Autocast keeps the copy that it makes of a weight until the outermost block is left. One that is older than the last
step of the weight's optimizer still holds what the weight was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import CAST, leaf_of, operation

if TYPE_CHECKING:
    from ampdoctor.record.autograd_graph import Node
    from ampdoctor.record.optimizer import OptimizerNames


class WeightCasts:
    """Knows when each optimizer has stepped, in the numbers that autograd gives its nodes as they are made."""

    def __init__(self) -> None:
        self._stepped: dict[str, int] = {}

    def optimizer_stepped(self, name: str) -> None:
        """The optimizer of this name has changed its weights."""
        self._stepped[name] = next_number()

    def is_stale(self, node: Node, optimizers: OptimizerNames) -> bool:
        """Whether `node` is the cast of a weight that an optimizer has changed since."""
        if operation(node) != CAST or not self._stepped:
            return False
        above = node.next_functions[0][0] if node.next_functions else None
        leaf = None if above is None else leaf_of(above)
        owner = None if leaf is None else optimizers.owner(leaf)
        return bool(node._sequence_nr() < self._stepped.get(owner or "", 0))


def next_number() -> int:
    """Return the number of the next node that autograd makes in this thread."""
    ask: Any = getattr(torch.autograd, "_get_sequence_nr", None)
    return int(ask()) if ask is not None else 0
