"""Operations by what they do: the classes by which autocast decides which dtype they run in."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.schema import OpRow, TimingRow

CLASSES = (
    ("loss", r"loss|kl_div|xlogy|cross_entropy"),
    ("attention", r"scaled_dot_product|attention"),
    ("matmul", r"^(add|b|badd|addb|_scaled_)?mm|matmul|^linear|conv|^addmv|^mv$|^dot$|einsum|lstm|gru"),
    ("softmax", r"softmax"),
    ("norm", r"norm|^rsqrt"),
    ("embedding", r"embedding"),
    ("nonlinearity", r"relu|gelu|silu|tanh|sigmoid|elu|hardswish|mish|softplus"),
    ("sum", r"^(sum|mean|var|std|prod|cumsum|logsumexp|norm|var_mean)$|pool"),
    ("cast", r"^_to_copy$"),
    ("elementwise", r"^(add|sub|mul|div|pow|exp|log|sqrt|neg|where|square|rsub|clamp|reciprocal|dropout|addcmul)_?$"),
)
"""Classes in the order in which they are looked for, each with what the names of its operations look like."""

_CLASSES = tuple((name, re.compile(pattern)) for name, pattern in CLASSES)


class Ran(NamedTuple):
    """Operations of one class in one dtype.

    Attributes:
        kind: the class.
        dtype: torch dtype that they took, or gave where they took no floating-point tensor.
        calls: how many.
    """

    kind: str
    dtype: str
    calls: int


def class_of(op: str) -> str | None:
    """Return the class of an operation (`aten.mm`); None for those that compute nothing, views for instance."""
    name = op.rpartition(".")[2]
    return next((kind for kind, pattern in _CLASSES if pattern.search(name)), None)


def ran_in(rows: Iterable[TimingRow | OpRow], direction: str = "forward") -> list[Ran]:
    """Return which classes of operations ran in which dtypes, in the order of CLASSES, what is most frequent first."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        kind = class_of(row.op) if row.direction == direction else None
        dtype = (row.dtype_in or row.dtype_out or "").split(",")[0]
        if kind is not None and dtype and kind != "cast":
            found[kind, dtype] += row.calls
    order = {kind: n for n, (kind, _) in enumerate(CLASSES)}
    ranked = sorted(found.items(), key=lambda item: (order[item[0][0]], -item[1]))
    return [Ran(kind, dtype, calls) for (kind, dtype), calls in ranked]
