"""Half copies of weights that a loss was computed from, although an optimizer has changed the weights since.

Autocast keeps the copy that it makes of a weight until the outermost block is left. Each pass through it runs the same
node of the graph; a copy made anew has a node of its own, whichever thread makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.autograd_graph import leaf_of, note

if TYPE_CHECKING:
    from ampdoctor.record.autograd_graph import Node
    from ampdoctor.record.optimizer import OptimizerNames

_MET = "ampdoctor.met"
"""Key of the note how many steps the weight's optimizer had taken when a backward pass first met the node."""


class WeightCasts:
    """Counts the steps of each optimizer, and leaves the count on the casts of its weights."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    def optimizer_stepped(self, name: str) -> None:
        """The optimizer of this name has changed its weights."""
        self._steps[name] = self._steps.get(name, 0) + 1

    def met(self, node: Node, optimizers: OptimizerNames) -> bool:
        """A backward pass meets a cast: is it that of a weight that its optimizer has changed since the first?"""
        above = node.next_functions[0][0] if node.next_functions else None
        leaf = None if above is None else leaf_of(above)
        if leaf is None:
            return False
        steps = self._steps.get(optimizers.owner(leaf) or "", 0)
        first = node.metadata.get(_MET)
        if first is None:
            note(node, _MET, steps)
        return first is not None and steps > first
