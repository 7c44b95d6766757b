"""Gradients that are made to be differentiated again, a gradient penalty's: were they scaled, and divided afterwards?

What code does with them between the pass that made them and the loss that they go into is read from the loss's graph,
on examined steps: the nodes that made them carry a note, and on the way there the numbers are looked at by which code
multiplied.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import SCALED, both, leaf_of, nodes, note, operation, scaled_share
from ampdoctor.record.quiet import in_backward, traced
from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import tensors_in
from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampdoctor.record.call_log import CallLog
    from ampdoctor.record.patching import Patches
    from ampdoctor.record.state import State

PENALTY = "ampdoctor.penalty"
"""Key of the note that this node made a gradient of a scaled loss."""

_MULTIPLYING = frozenset({"MulBackward0", "DivBackward0"})
_OF_LISTS = ("ForeachMul", "ForeachDiv")
"""Multiplications of whole lists: their number is not read, so they are taken to be the division."""

_MOST_NODES = 200_000
_ROUNDED = 1.01
"""A hundredth: a scale divided by in half precision is off by less."""


class PenaltyGradients(Watcher):
    """Watches `torch.autograd.grad` and `backward` where they are asked for a graph of the gradients."""

    def __init__(self, state: State, log: CallLog) -> None:
        super().__init__(state, log)
        self._noted: int | None = None
        self._leaves: list[torch.Tensor] = []

    def install(self, patches: Patches) -> None:
        """Put its wrapper in place."""
        safe = self._guarded
        before, after = safe(self._before_grad), safe(self._after_grad)
        patches.around(torch.autograd, "grad", before, after, everywhere=True)

    def remove(self) -> None:
        """Let go of what it holds."""
        self._noted = None
        self._leaves = []

    def _before_grad(
        self, outputs: Any, _inputs: Any = None, _grad_outputs: Any = None, _retain_graph: Any = None,
        create_graph: Any = False, *_: Any, **__: Any,
    ) -> dict[str, Any] | None:  # fmt: skip
        # Transformations of torch.func make their gradients by it too, of tensors whose values can't be looked at.
        if create_graph is not True or in_backward() or traced():
            return None
        shares = [scaled_share(root.grad_fn) for root in tensors_in(outputs)]
        return self._log.begin("grad", scaled=reduce(both, shares) if shares else None)

    def _after_grad(self, call: dict[str, Any] | None, result: Any, error: BaseException | None) -> None:
        if call is None:
            return
        if error is None and self._state.tensors is not None:
            gradients = [t for t in tensors_in(result) if measurable(t)]
            call["norm"] = self._state.log.scalar(_norm(gradients))
            if call["scaled"] in {"all", "some"}:
                self._note(gradients)
        self._log.finish(call, None, error)

    def backward_begins(self, roots: list[torch.Tensor], scaled: str | None, *, create_graph: bool) -> None:
        """A backward pass begins: one that makes a graph leaves in `.grad` what can be differentiated."""
        wanted = create_graph and scaled in {"all", "some"} and self._state.tensors is not None
        leaves = (leaf_of(node) for node in nodes(roots)) if wanted else ()
        self._leaves = [leaf for leaf in leaves if leaf is not None]

    def backward_ended(self) -> None:
        """The pass is over."""
        leaves, self._leaves = self._leaves, []
        self._note(leaf.grad for leaf in leaves if leaf.grad is not None)

    def undivided(self, roots: list[torch.Tensor], scale: Callable[[], float | None]) -> bool | None:
        """Return whether gradients of a scaled loss are in the losses `roots` as they are, without 1/scale.

        None where there are none, or where nobody looked: this may wait for the device, on examined steps that have
        such gradients.
        """
        if self._noted != self._state.log.step:
            return None
        value = scale()
        return None if not value else _reached_undivided(roots, value)

    def _note(self, gradients: Iterable[torch.Tensor]) -> None:
        for gradient in gradients:
            if gradient.grad_fn is not None:
                note(gradient.grad_fn, PENALTY, True)
                self._noted = self._state.log.step


def _norm(gradients: list[torch.Tensor]) -> torch.Tensor | None:
    filled = [g.detach() for g in gradients if g.numel()]
    if not filled:
        return None
    device = filled[0].device
    norms = [torch.linalg.vector_norm(g.float() if g.itemsize < 4 else g) for g in filled]
    whole: torch.Tensor = torch.linalg.vector_norm(torch.stack([n.float().to(device) for n in norms]))
    return whole


def _reached_undivided(roots: list[torch.Tensor], scale: float) -> bool | None:
    """Walk the graph, each node at most once with and once without a division above it."""
    found: bool | None = None
    stack: list[tuple[Any, bool]] = [(t.grad_fn, False) for t in roots if t.grad_fn is not None]
    # Holding the nodes themselves keeps their ids from being used again while we walk.
    seen: dict[tuple[int, bool], Any] = {}
    while stack and len(seen) < _MOST_NODES:
        node, divided = stack.pop()
        if (id(node), divided) in seen or (id(node), False) in seen:
            continue
        seen[id(node), divided] = node
        if node.metadata.get(PENALTY):
            if not divided:
                return True
            found = False
            continue
        divided = divided or _divides(node, scale)
        stack += [(parent, divided) for parent, _ in node.next_functions if parent is not None]
    return found


def _divides(node: Any, scale: float) -> bool:
    """Whether the node multiplies by 1/scale or less."""
    name = operation(node)
    if name.startswith(_OF_LISTS):
        return True
    if name not in _MULTIPLYING or node.metadata.get(SCALED):
        return False
    number = _number(node)
    if number is None:
        return False
    return number * _ROUNDED >= scale if name == "DivBackward0" else number * scale <= _ROUNDED


def _number(node: Any) -> float | None:
    """Return the magnitude of the number that the node multiplies or divides by; None where it is no number."""
    try:
        # Hooks on what was saved would run code of the user's.
        hooked = getattr(node._raw_saved_other, "unpack_hook", None) is not None
        other = None if hooked else node._saved_other
    except RuntimeError:  # freed, or not saved
        return None
    if other is None or other.numel() != 1 or other.is_complex() or other.requires_grad:
        return None
    return abs(float(other))
