"""What makes NaN and infinities in FP32 as well, by the operation: what it means, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.schema import OpRow


@dataclass(frozen=True)
class Kind:
    """One way to make a NaN or an infinity.

    Attributes:
        what: what happened, as a noun phrase.
        title: what to do, imperative.
        code: what to write.
        expected: what that does.
    """

    what: str
    title: str
    code: str
    expected: str


MASKED_ROW = Kind(
    "a softmax over a row of which everything is masked",
    "Leave fully masked rows out of the softmax",
    """\
weights = torch.softmax(scores, dim=-1)
weights = weights.masked_fill(mask.all(dim=-1, keepdim=True), 0.0)  # rows with nothing to attend to
# or: scores.masked_fill(mask, torch.finfo(scores.dtype).min) in place of -inf""",
    "A row without a single place to attend to gives zeros, and not 0/0.",
)

EMPTY = Kind(
    "a mean over no elements",
    "Guard the mean against an empty selection",
    """\
loss = (values * mask).sum() / mask.sum().clamp(min=1)  # in place of values[mask].mean()""",
    "A batch in which nothing is selected gives a loss of 0, and not 0/0.",
)

DIVISION = Kind(
    "a division by zero",
    "Guard the divisor",
    "x = a / b.clamp(min=1)  # counts, sizes of masks; else b + eps, with an eps that b's format holds",
    "An empty mask or a constant input gives 0, and not 0/0.",
)

LOGARITHM = Kind(
    "a logarithm of zero or of a negative number",
    "Keep the logarithm away from zero",
    "y = torch.log(x.clamp_min(1e-6))  # or log_softmax, logsigmoid, logsumexp, log1p",
    "The smallest argument is one whose logarithm is finite.",
)

ROOT_SLOPE = Kind(
    "the slope of a root, a norm or a division at zero, which is infinite",
    "Keep the argument of the root away from zero",
    "y = torch.sqrt(x + 1e-6)  # before the root: adding to its result leaves the slope infinite",
    "The slope at zero is finite.",
)

ROOT = Kind(
    "a root or power that is not defined for its argument",
    "Keep the argument in range",
    "y = torch.sqrt(x.clamp_min(1e-6))",
    "No argument is zero or negative.",
)

SPREAD = Kind(
    "the spread of a single element",
    "Take the spread of one element as zero",
    "s = x.std(dim=0, correction=0)  # or leave batches of one sample out",
    "Without Bessel's correction one element has a spread of 0, and not 0/0.",
)

OTHER = Kind(
    "an operation that leaves what FP32 can hold or is not defined for its inputs",
    "Look at what goes into that line on such a step",
    """\
with torch.autograd.detect_anomaly():  # for one such step, in FP32
    loss = compute_loss(batch)
    loss.backward()""",
    "It stops at the operation, with a traceback.",
)

_FORWARD = (
    ("softmax", MASKED_ROW),
    ("dot_product_attention", MASKED_ROW),
    ("mean", EMPTY),
    ("nll_loss", EMPTY),
    ("cross_entropy", EMPTY),
    ("div", DIVISION),
    ("reciprocal", DIVISION),
    ("log", LOGARITHM),
    ("xlogy", LOGARITHM),
    ("std", SPREAD),
    ("var", SPREAD),
    ("sqrt", ROOT),
    ("pow", ROOT),
    ("acos", ROOT),
    ("asin", ROOT),
    ("atanh", ROOT),
)

_BACKWARD = ("div", "sqrt", "pow", "norm", "reciprocal", "mul")


def kind_of(origin: Origin) -> Kind:
    """Return what happened in the first operation whose result is not finite."""
    return _kind(origin.row)


def _kind(row: OpRow) -> Kind:
    name = row.op.partition(".")[2] or row.op
    if row.direction == "backward":
        return ROOT_SLOPE if any(part in name for part in _BACKWARD) else OTHER
    return next((kind for part, kind in _FORWARD if part in name), OTHER)
