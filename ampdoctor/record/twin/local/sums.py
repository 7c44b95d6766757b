"""Sums: what is absorbed (a + b == a although b != 0) and what is cancelled.

The total is the first operand, and an increment is what the operation adds to it: `alpha * b` of add and sub,
`weight * (end - start)` of lerp, `value * t1 * t2` and `value * t1 / t2` of addcmul and addcdiv; in place or not, and
each pair of their `_foreach_` forms. An increment counts as nonzero where its factors are. What adds a plain number
(`x + eps`) has no increments of its own to lose and is left out.

An element of a + b, one of them half or cast from half just before, is cancelled where 0 < |a + b| < 4 eps
max(|a|, |b|): as such an input is known to eps/2 of its magnitude, and the two are about as large where they cancel,
under two bits of the result are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.local import bits, brain_sums
from ampdoctor.record.twin.local.measures import MEASURES, Measure, add_up, pieces
from ampdoctor.record.twin.local.natures import base_of, plain, plain_name
from ampdoctor.record.twin.operations import nth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ampdoctor.record.twin.local.measures import Measured
    from ampdoctor.record.twin.operations import Operation

_BITS_LEFT = 2


@dataclass
class Sum:
    """One total and what is added to it.

    Attributes:
        name: add, sub, lerp, addcmul or addcdiv.
        operands: the total and the tensors that the increment is made of.
        result: returns the sum of operands that are given in FP32 or wider.
        dtype: of the result.
        alone: no half goes in: nothing is said of it elsewhere.
        unscaled: it is a + b or a - b.
        known_as: the dtypes that the operands are known to the precision of: those that they were cast from.
    """

    name: str
    operands: tuple[torch.Tensor, ...]
    result: Callable[..., torch.Tensor]
    dtype: torch.dtype
    alone: bool
    unscaled: bool
    known_as: tuple[torch.dtype, ...]

    @property
    def exact(self) -> torch.dtype:
        """The dtype that it is added up in here."""
        return torch.float64 if self.dtype is torch.float64 else torch.float32

    @property
    def cancels_below(self) -> float | None:
        """The share of the larger operand below which a result is cancelled; None where that is not asked."""
        halves = [torch.finfo(d).eps for d in self.known_as if d in HALVES]
        if self.name not in {"add", "sub"} or not halves:
            return None
        return float(2**_BITS_LEFT * max(halves))


def sums_of(operation: Operation, known_as: Callable[[torch.Tensor], torch.dtype], *, alone: bool) -> list[Sum]:
    """Return the sums of floating-point tensors in an operation of nature SUM.

    Args:
        operation: the operation.
        known_as: returns the dtype that a tensor is known to the precision of.
        alone: no half goes in.
    """
    base = base_of(operation.traits.name)
    name = plain_name(base)
    totals = operation.args[0]
    several = isinstance(totals, (list, tuple))
    found = []
    for n, total in enumerate(totals if several else [totals]):
        parts, result = _increment(
            name, [nth(a, n) for a in operation.args[1:]], {k: nth(v, n) for k, v in operation.kwargs.items()}, n
        )
        here = totals[0].device if several else total.device
        if result is None or not all(_known(t, here) for t in (total, *parts)):
            continue
        dtype = total.dtype
        if not base.endswith("_"):
            for part in parts:
                if part.dtype is not dtype:
                    dtype = torch.promote_types(dtype, torch.result_type(total, part))
        operands = (total, *parts)
        known = tuple(map(known_as, operands))
        if any(part.shape != total.shape for part in parts):
            operands = tuple(torch.broadcast_tensors(*operands))
        unscaled = name in {"add", "sub"} and _alpha(operation.args[1:], operation.kwargs) == 1
        found.append(Sum(name, operands, result, dtype, alone, unscaled, known))
    return found


def measured(sums: Sequence[Sum], results: Sequence[torch.Tensor] = ()) -> Measured | None:
    """Return the vector of what sums absorbed and cancelled; of those alone, with all that is said of them.

    Args:
        sums: the sums of one operation.
        results: what the operation is in FP32, if that is known.
    """
    if len(sums) == len(results) == 1 and sums[0].unscaled:
        (one,), (result,) = sums, results
        if result.shape == one.operands[0].shape and result.dtype is one.exact:
            return add_up([_piece(one, piece, r) for *piece, r in pieces(*one.operands, result)])
    return add_up([_piece(one, piece) for one in sums for piece in pieces(*one.operands)])


def _increment(
    name: str, args: Sequence[Any], kwargs: dict[str, Any], n: int
) -> tuple[tuple[Any, ...], Callable[..., torch.Tensor] | None]:
    """Return the tensors that the increment is made of, and the sum as a function of total and those."""
    if name in {"add", "sub"}:
        alpha = _alpha(args, kwargs)
        add = torch.add if name == "add" else torch.sub
        return (args[0],), (lambda a, b: add(a, b, alpha=alpha)) if alpha != 0 else None
    if name == "lerp":
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        if isinstance(weight, torch.Tensor):
            return (args[0], weight), torch.lerp
        return (args[0],), (lambda a, end: torch.lerp(a, end, weight)) if weight else None
    value = kwargs.get("value", args[2] if len(args) > 2 else 1)
    if isinstance(value, torch.Tensor):  # the scalars of all totals, on the host
        value = value[n].item()
    function = torch.addcmul if name == "addcmul" else torch.addcdiv
    return tuple(args[:2]), (lambda a, x, y: function(a, x, y, value=value)) if value != 0 else None


def _alpha(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return kwargs.get("alpha", args[1] if len(args) > 1 else 1)


def _known(value: Any, device: torch.device) -> bool:
    if not isinstance(value, torch.Tensor) or value.device != device:
        return False
    return plain(value) and value.is_floating_point()


def _piece(one: Sum, operands: Sequence[torch.Tensor], result: torch.Tensor | None = None) -> Measured:
    measure = _on_cpu if operands[0].device.type == "cpu" else _on_device
    return measure(one, operands, result)


def _on_cpu(one: Sum, operands: Sequence[torch.Tensor], result: torch.Tensor | None) -> list[float]:
    if one.unscaled and result is not None and all(t.dtype is torch.bfloat16 for t in operands):
        counts = brain_sums.counts(operands[0], operands[1], result)
        if counts is not None:
            vector = [0.0] * MEASURES
            vector[Measure.ABSORBED], vector[Measure.CANCELLED] = map(float, counts)
            return vector
    return _in_floats(one, operands)


def _in_floats(one: Sum, operands: Sequence[torch.Tensor]) -> list[float]:
    total, wide = operands[0], [t.to(one.exact) for t in operands]
    result = one.result(*wide)
    vector = [0.0] * MEASURES
    rounded = result.to(one.dtype)
    same = _same(rounded, total.to(one.dtype))
    if same.any():
        for moving in _moving(one, wide):
            same &= np.not_equal(moving.numpy(), 0)
        same &= np.isfinite(result.numpy())
        vector[Measure.ABSORBED] = float(np.count_nonzero(same))
    if (edge := one.cancels_below) is not None:
        # An operand as wide as this is the run's own, where those of halves are copies of no further use.
        sizes = [w.abs() if w is t else w.abs_() for w, t in zip(wide, operands, strict=True)]
        bound = torch.maximum(*sizes).mul_(edge)
        size = result.abs_().numpy()
        cancelled = np.less(size, bound.numpy())
        cancelled &= np.not_equal(size, 0)
        vector[Measure.CANCELLED] = float(np.count_nonzero(cancelled))
    if one.alone:
        signed = bits.integers(result.reshape(-1))
        vector[Measure.NONZERO], vector[Measure.ABSMAX] = bits.nonzero(signed), bits.largest(signed)
        if not math.isfinite(vector[Measure.ABSMAX]):
            finite = np.isfinite(result.numpy())
            born = float(result.numel() - np.count_nonzero(finite))
            vector[Measure.BORN] = vector[Measure.BORN_FP32] = born
            vector[Measure.ABSMAX] = float(np.abs(result.numpy()[finite]).max(initial=0.0))
    return vector


def _same(one: torch.Tensor, other: torch.Tensor) -> NDArray[np.bool_]:
    """Return where two tensors of one dtype are equal; halves, which NumPy does not all know, to the bit."""
    if one.dtype in HALVES:
        one, other = one.view(torch.int16), other.view(torch.int16)
    equal: NDArray[np.bool_] = np.equal(one.numpy(), other.numpy())
    return equal


def _on_device(one: Sum, operands: Sequence[torch.Tensor], result: torch.Tensor | None) -> torch.Tensor:
    total, wide = operands[0], [t.to(one.exact) for t in operands]
    if result is None:
        result = one.result(*wide)
    rounded = result.to(one.dtype)
    finite = torch.isfinite(rounded)
    absorbed = (rounded == total) & finite
    for moving in _moving(one, wide):
        absorbed &= moving != 0
    vector = torch.zeros(MEASURES, dtype=torch.float64, device=result.device)
    vector[Measure.ABSORBED] = absorbed.sum()
    if (edge := one.cancels_below) is not None:
        bound = torch.maximum(wide[0].abs(), wide[1].abs()) * edge
        vector[Measure.CANCELLED] = ((result.abs() < bound) & (result != 0)).sum()
    if one.alone:
        vector[Measure.NONZERO] = torch.count_nonzero(result)
        vector[Measure.ABSMAX] = torch.where(finite, result.abs(), 0.0).amax()
        vector[Measure.BORN] = vector[Measure.BORN_FP32] = (~finite).sum()
    return vector


def _moving(one: Sum, wide: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield what must differ from zero for the increment to."""
    if one.name == "lerp":
        yield wide[1] - wide[0]
        yield from wide[2:]
    else:
        yield from wide[1 : 2 if one.name == "addcdiv" else None]
