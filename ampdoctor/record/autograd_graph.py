"""Reading the autograd graph that a backward pass is about to run: what was scaled, by how much, what it reaches.

Only the graph's public surface is read (`next_functions`, `metadata`, `variable`, `_saved_*`); nothing is changed in
it but for notes of our own in `metadata`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Node = Any
"""torch.autograd.graph.Node; its attributes depend on the operation."""

SCALED = "ampdoctor.scaled"
"""Key of the note that GradScaler.scale made this node."""

UNSCALED = "ampdoctor.unscaled"
"""Key of the note what the loss was before that."""

SITE = "ampdoctor.site"
"""Key of the note which module's output this node made."""

ALIVE = "ampdoctor.alive"
"""Key of an object of ours that lives as long as the node."""

CAST = "ToCopyBackward0"
CASTING = frozenset({CAST, "AddBackward0", "SubBackward0"})
"""Operations that pass a gradient on unchanged but for its dtype: a cast, and sums of half and FP32 (a bias kept in
FP32 beside a half matmul), where the gradient of the half operand is cast without a node of its own."""
ACCUMULATE = "torch::autograd::AccumulateGrad"
_PASS_ON = frozenset(
    {
        "AddBackward0", "SubBackward0", "StackBackward0", "CatBackward0", "SumBackward0", "SumBackward1",
        "MeanBackward0", "MeanBackward1", "NegBackward0", "CloneBackward0", "ViewBackward0", "ReshapeAliasBackward0",
        "SqueezeBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "UnbindBackward0", "SelectBackward0",
        "ExpandBackward0", CAST,
    }
)  # fmt: skip
"""Operations whose output is scaled where their inputs are."""

_FACTORS = frozenset({"MulBackward0", "DivBackward0"})
_DEPTH = 32
_MAX_NODES = 200_000
_MAX_TERMS = 2_000
"""Nodes looked at for how a loss is put together; this happens on every step."""


def operation(node: Node) -> str:
    """Return the operation's name; a user's function may keep a `name` of its own on its node."""
    kind = type(node)
    name = _NAMES.get(kind)
    if name is not None:
        return name
    if isinstance(node, torch._C._FunctionBase):
        return kind.__name__
    name = str(node.name())
    if name.rpartition(":")[2] == kind.__name__:  # torch has a class for this operation alone
        _NAMES[kind] = name
    return name


_NAMES: dict[type, str] = {}
"""Names of operations by the classes of their nodes."""


def note(node: Node, key: str, value: object) -> None:
    """Leave a note of ours on a node."""
    node.metadata[key] = value


def both(a: str | None, b: str | None) -> str | None:
    """Return what is scaled of two things together, given what is of each."""
    return a if a == b else "some"


def mark_scaled(output: torch.Tensor, unscaled: object = None) -> None:
    """Note that a scaler made `output`, and what it was before, if that is known."""
    if output.grad_fn is not None:
        note(output.grad_fn, SCALED, True)
        note(output.grad_fn, UNSCALED, unscaled)


def unscaled(root: torch.Tensor) -> Any:
    """Return the note of what `root` was before a scaler made it; None where it is no such tensor."""
    node: Node = root.grad_fn
    return None if node is None else node.metadata.get(UNSCALED)


def scaled_share(root: Node | None) -> str | None:
    """Return whether "all", "some" or "none" of what `root` sums up came from GradScaler.scale.

    None where it sums up too much to follow.
    """
    if root is None:
        return "none"
    shares: dict[Node, str] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        terms = _terms(node)
        unknown = [n for n in terms if n not in shares]
        if not unknown:
            shares[node] = _share(node, [shares[n] for n in terms])
            stack.pop()
        elif len(shares) + len(stack) > _MAX_TERMS:
            return None
        stack += unknown
    return shares[root]


def _terms(node: Node) -> list[Node]:
    """Return the nodes whose scaling decides on that of `node`."""
    if node.metadata.get(SCALED) or operation(node) not in _PASS_ON | _FACTORS:
        return []
    return [n for n, _ in node.next_functions if n is not None]


def _share(node: Node, shares: list[str]) -> str:
    if node.metadata.get(SCALED):
        return "all"
    if operation(node) in _FACTORS:
        return next((s for s in ("all", "some") if s in shares), "none")
    return shares[0] if len(set(shares)) == 1 else "some" if shares else "none"


def hand_factors(root: Node | None) -> list[float] | None:
    """Return the numbers by which code multiplied the loss (1/n where it divided by n), the scaler's scale left out.

    None where one of them lies on an accelerator: reading it would wait for the device.
    """
    factors: list[float] = []
    node = root
    for _ in range(_DEPTH):
        if node is None or operation(node) not in _FACTORS | {"NegBackward0", CAST}:
            break
        if operation(node) in _FACTORS and not node.metadata.get(SCALED):
            number = _constant(node)
            if number is _ON_DEVICE:
                return None
            if number is None:
                break
            factors.append(number if operation(node) == "MulBackward0" else 1.0 / (number or 1.0))
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return factors


_ON_DEVICE = object()


def _constant(node: Node) -> Any:
    """Return the number that the node multiplies or divides by, None where it is no single number."""
    if sum(n is not None for n, _ in node.next_functions) != 1:
        return None
    try:
        # Hooks on what was saved (checkpointing, offloading) would run: recompute a whole block, for instance.
        if getattr(node._raw_saved_other, "unpack_hook", None) is not None:
            return None
        other = node._saved_other
    except RuntimeError:  # freed by a pass before: the one at hand is about to say so
        return None
    if other is None or other.numel() != 1 or other.is_complex():
        return None
    return float(other) if other.device.type == "cpu" else _ON_DEVICE


def nodes(roots: Iterable[torch.Tensor]) -> Iterator[Node]:
    """Yield every node that a backward pass from `roots` may run, at most _MAX_NODES."""
    stack = [t.grad_fn for t in roots if t.grad_fn is not None]
    # Holding the nodes themselves keeps their ids from being used again while we walk.
    seen = {id(node): node for node in stack}
    while stack and len(seen) < _MAX_NODES:
        node = stack.pop()
        yield node
        for parent, _ in node.next_functions:
            if parent is not None and (key := id(parent)) not in seen:
                seen[key] = parent
                stack.append(parent)


def leaf_of(node: Node) -> torch.Tensor | None:
    """Return the leaf tensor whose .grad the node accumulates into, if it is such a node."""
    return node.variable if operation(node) == ACCUMULATE else None


def narrows(node: Node) -> bool:
    """Whether the gradient that `node` is handed may be wide, and one that it hands on half."""
    if _arriving(node) in HALVES:
        return False
    return any(_arriving(parent) in {None, *HALVES} for parent, _ in node.next_functions if parent is not None)


def _arriving(node: Node) -> torch.dtype | None:
    """Return the dtype of the gradient that a node with one output is handed; None where torch does not say."""
    made: Any = getattr(node, "_input_metadata", ())
    return made[0].dtype if len(made) == 1 else None


def site_below(node: Node) -> str:
    """Return the path of the nearest module that made what `node` works on; "" where none is near."""
    level, seen = [node], set()
    for _ in range(_DEPTH):
        if not level:
            break
        parents = [n for node in level for n, _ in node.next_functions if n is not None]
        for parent in parents:
            if SITE in parent.metadata:
                return str(parent.metadata[SITE])
        level = [n for n in parents if id(n) not in seen]
        seen |= {id(n) for n in level}
    return ""
