"""The gradient of a half output before it was cast to half.

Where the first thing that happens to an output is its cast to FP32, as in most losses, its gradient exists in FP32
for a moment. A hook on the node of that cast takes hold of it. Only the upper end of the graph is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.record.autograd_graph import CAST, note, operation
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from torch.utils.hooks import RemovableHandle

    from ampdoctor.record.autograd_graph import Node
    from ampdoctor.record.twin.replay.root_call import Output

_OUTPUT = "ampdoctor.output"
"""Key of the note which outputs a node made."""

_RESHAPES = frozenset(
    {
        "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "SqueezeBackward1",
        "SqueezeBackward2", "UnsqueezeBackward0",
    }
)  # fmt: skip
"""Operations that leave elements and their order alone."""

_MOST_NODES = 64
_MOST_RESHAPES = 4


def note_output(tensor: torch.Tensor, output: Output) -> None:
    """Leave a note on the node of an output, by which it is found from above."""
    node = tensor.grad_fn
    if node is not None:
        note(node, _OUTPUT, {**_outputs_of(node), tensor.output_nr: output})


class CastsAbove:
    """The hooks of one backward pass.

    Args:
        arrived: given the output and its gradient before and after the cast.
    """

    def __init__(self, arrived: Callable[[Output, torch.Tensor, torch.Tensor | None], None]) -> None:
        self._arrived = arrived
        self._handles: list[RemovableHandle] = []

    def find(self, roots: Sequence[torch.Tensor], outputs: Sequence[Output]) -> None:
        """Look for casts between `roots` and those of `outputs` that are half."""
        self.release()
        wanted = sum(output.dtype in HALVES for output in outputs)
        if not wanted:
            return
        for node in _upper_nodes(roots):
            if operation(node) == CAST and (output := _output_below(node)) is not None:
                self._handles.append(node.register_hook(self._hook(output)))
                if len(self._handles) >= wanted:
                    break

    def release(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, output: Output) -> Callable[..., None]:
        arrived = self._arrived

        def hook(after: tuple[Any, ...], before: tuple[Any, ...]) -> None:
            if before and before[0] is not None:
                arrived(output, before[0], after[0] if after else None)

        return hook


def _upper_nodes(roots: Sequence[torch.Tensor]) -> Iterator[Node]:
    """Yield the nodes nearest to `roots`, at most _MOST_NODES, none below an output."""
    level = [t.grad_fn for t in roots if t.grad_fn is not None]
    seen = {id(node): node for node in level}
    while level:
        below: list[Node] = []
        for node in level:
            yield node
            for parent, number in node.next_functions:
                if parent is None or id(parent) in seen or number in _outputs_of(parent):
                    continue
                if len(seen) >= _MOST_NODES:
                    return
                seen[id(parent)] = parent
                below.append(parent)
        level = below


def _output_below(cast: Node) -> Output | None:
    """Return the half output that `cast` casts, maybe in another shape."""
    node = cast
    for _ in range(_MOST_RESHAPES):
        parent, number = node.next_functions[0]
        if parent is None:
            return None
        output: Output | None = _outputs_of(parent).get(number)
        if output is not None:
            return output if output.dtype in HALVES else None
        if operation(parent) not in _RESHAPES:
            return None
        node = parent
    return None


def _outputs_of(node: Node) -> dict[int, Output]:
    outputs: dict[int, Output] = node.metadata.get(_OUTPUT, {})
    return outputs
