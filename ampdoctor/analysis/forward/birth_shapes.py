"""The shapes that a fault of the forward pass has in the graph of a step's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.first_loss import lost_mask
from ampdoctor.analysis.forward.op_flow import CASTS, FUSED_ATTENTION, base, is_product

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.op_flow import Flow
    from ampdoctor.trace.schema import OpRow

HALVES = frozenset({"float16", "bfloat16"})

LOGS = frozenset(["log", "log2", "log10", "log1p", "logit", "xlogy"])

PROBABILITIES = frozenset({"_softmax", "sigmoid", "exp", "exp2", "tanh", "erf", "special_ndtr"})
"""What comes near zero or one, and is rounded to it in half. (tanh and erf by way of (1 + tanh(x)) / 2.)"""

_ARITHMETIC = frozenset({"mul", "div", "add", "sub", "rsub", "neg"})
_BOUNDS = frozenset({"clamp", "clamp_min", "maximum", "minimum", "where", "masked_fill"})
SCALINGS = _ARITHMETIC | _BOUNDS | {"scalar_tensor"}
"""What is done to one element at a time, and leaves small small and large large."""

REDUCTIONS = frozenset(["mean", "sum", "cumsum", "logcumsumexp"])

SPREADS = frozenset(["linalg_vector_norm", "norm", "var", "var_mean", "std", "std_mean"])
"""Reductions of squares."""

ROOTS = frozenset({"sqrt", "rsqrt", "pow"}) | SPREADS

SINGULAR = frozenset(["sqrt", "rsqrt", "reciprocal", "div", "pow"]) | LOGS
"""What makes NaN or infinities of zeros and negative numbers."""

SQUARES = frozenset({"pow", "mul", "addcmul"})

SCORES = SCALINGS | frozenset({"tanh"})
"""What is done to attention scores on their way to the softmax: scaled, biased, masked, capped."""


def is_half(row: OpRow) -> bool:
    """Whether the result is in a half format."""
    return bool(HALVES & set(row.dtype_out.split(",")))


def probability_before(flow: Flow, row: OpRow, *, proven: bool) -> OpRow | None:
    """Return the operation that rounded a probability to 0 or 1, of which `row` takes the logarithm.

    `proven` says that the step is finite in FP32. Where nobody tried, FP32 must have no zero among the same results.
    """
    if base(row) not in LOGS or row.direction != "forward":
        return None
    passing = SCALINGS | REDUCTIONS | CASTS
    for found in flow.before(row, lambda r: base(r) in passing):
        if base(found) not in PROBABILITIES or not is_half(found):
            continue
        to_zero = found.flushed > 0 and found.nonzero == found.numel
        to_one = found.flushed == 0 and found.absmax < 1.0
        if proven or to_zero or to_one:
            return found
    return None


def lost_guard(flow: Flow, row: OpRow) -> OpRow | None:
    """Return the operation whose constant the format has made zero, and that `row` divides by or takes the root of."""
    candidates = [row, *flow.before(row, _within_norm)]
    return next((r for r in candidates if r.constant is not None and r.flushed), None)


def _within_norm(row: OpRow) -> bool:
    """Whether it is a step on the way from values to what they are divided by, or back in its derivative."""
    return not is_product(row) and "softmax" not in row.op and base(row) not in CASTS


def cancelled_before(flow: Flow, row: OpRow) -> OpRow | None:
    """Return the difference whose cancellation `row`, a root, logarithm or division, is undone by.

    Every NaN must be accounted for by an element of which under two bits are left. A division by a root that came out
    as zero is another matter: zeros are no longer counted as cancelled, so that some such elements must do.
    """
    if base(row) not in SINGULAR or row.direction != "forward":
        return None
    by_root = base(row) in {"div", "reciprocal"}
    roots = [p for p in flow.parents(row) if base(p) == "sqrt"] if by_root else [row]
    least = 1 if by_root else row.born
    for root in roots:
        for found in flow.before(root, lambda r: base(r) in SCALINGS | CASTS):
            if base(found) in {"sub", "add"} and (found.cancelled or 0) >= least:
                return found
    return None


def mask_before(flow: Flow, row: OpRow) -> OpRow | None:
    """Return what made a mask's constant infinite on its way into a softmax, `row`: NaN where all of a row is so."""
    if not ("softmax" in row.op or FUSED_ATTENTION in row.op) or row.direction != "forward":
        return None
    return next((r for r in flow.before(row, lambda r: base(r) in SCORES | CASTS) if lost_mask(r)), None)


def feeds_softmax(flow: Flow, row: OpRow) -> OpRow | None:
    """Return the softmax that a product goes into as scores; a fused attention is one by itself."""
    if FUSED_ATTENTION in row.op:
        return row
    if not is_product(row):
        return None
    after = flow.after(row, lambda r: base(r) in SCORES | CASTS)
    return next((r for r in after if base(r) in {"_softmax", "_safe_softmax"}), None)


def feeds_norm(flow: Flow, row: OpRow, *, by_root: bool) -> OpRow | None:
    """Return what divides by the mean or sum that `row` makes infinite; `by_root`: by the root of it.

    What overflows must serve the statistic alone: where it is also handed on, it is the activation that overflows.
    """
    kind, children = base(row), flow.children(row)
    reduces = kind in REDUCTIONS | SPREADS
    if not reduces and not (kind in SQUARES and children and all(base(c) in REDUCTIONS for c in children)):
        return None
    rooted = kind in SPREADS
    way = REDUCTIONS | SCALINGS | CASTS | {"sqrt", "pow"}
    for found in flow.after(row, lambda r: base(r) in way and not is_product(r)):
        rooted = rooted or base(found) in ROOTS
        if (rooted or not by_root) and _divides(flow, found):
            return found
    return None


def _divides(flow: Flow, row: OpRow) -> bool:
    """Whether `row` divides many values by a statistic of theirs: more than there are statistics."""
    if base(row) in {"rsqrt", "reciprocal", "pow"}:
        return True
    each = row.numel / row.calls
    return base(row) == "div" and any(p.numel / p.calls < each for p in flow.parents(row))
