"""Sums of a total in half and an increment, beside what they come to in FP32.

What an operation adds to which total is found without a look at any value: the values of a bounded sample are taken
where the total turns out to be one that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.accumulators.origins import address
from ampdoctor.record.headroom import fits
from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.operations import nth, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampdoctor.record.twin.operations import Operation

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "lerp": torch.lerp, "addcmul": torch.addcmul, "addcdiv": torch.addcdiv,
}  # fmt: skip

MOST_ELEMENTS = 1 << 24
"""Elements whose values are held at a time."""

SAMPLE = 1 << 18
"""Elements of a total that are looked at, spread evenly over a larger one."""

_COPIES = 16
"""Copies of a half sample that the FP32 and FP64 ones come to."""

_FEW = 1 << 14


@dataclass(frozen=True)
class Scaled:
    """A total that was multiplied by a number, and what the elements looked at were before in FP32."""

    before: torch.Tensor
    factor: float


@dataclass(frozen=True)
class Values:
    """Elements of a total before a sum, and what they come to in FP32."""

    before: torch.Tensor
    exact: torch.Tensor
    rate: float | None = None

    def since(self, scaled: Scaled) -> Values:
        """Return the sum as one with the multiplication of the total before it: d * total + increment."""
        exact = scaled.before * scaled.factor + (self.exact - self.before)
        return Values(scaled.before, exact, 1.0 - scaled.factor)

    def numbers(self, result: torch.Tensor) -> torch.Tensor:
        """Return what the run has come to as a float64 vector: elements, those that FP32 would have changed, those of
        them that kept their value, the sum of squares of all changes and of theirs, the largest magnitude."""
        increment = self.exact - self.before
        same = sample(result).float() == self.before
        absorbed = same & (increment != 0) & torch.isfinite(self.exact)
        squares = increment.double().square()
        total = squares.sum()
        numbers = [
            torch.full_like(total, float(self.before.numel())), torch.count_nonzero(increment), absorbed.sum(),
            total, torch.where(absorbed, squares, 0.0).sum(), self.before.abs().amax(),
        ]  # fmt: skip
        return torch.stack([n.double() for n in numbers])


@dataclass(frozen=True)
class HalfSum:
    """One total and what is added to it; of its values nothing is known.

    Attributes:
        name: add, sub, lerp, addcmul, addcdiv or copy.
        total: the total in half.
        parts: the tensors that the increment is made of.
        in_place: the total is changed itself.
        rate: share of the way to its argument that a lerp goes, where it is a number.
        args: what goes into the sum beside the total; `out=` does not.
        kwargs: the same, by name.
    """

    name: str
    total: torch.Tensor
    parts: tuple[torch.Tensor, ...]
    in_place: bool
    rate: float | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def values(self) -> Values | None:
        """Take the values before the operation runs; None where there is no room for them."""
        some = sample(self.total)
        if not has_room(some):
            return None
        before = some.float()
        args = [self._wide(a) for a in self.args]
        kwargs = {k: self._wide(a) for k, a in self.kwargs.items()}
        exact = args[0] if self.name == "copy" else _FUNCTIONS[self.name](before, *args, **kwargs)
        known = exact.shape == before.shape and exact.is_floating_point()
        return Values(before, exact.float(), self.rate) if known else None

    def _wide(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        # A copy, as the operation may write to it.
        value = value if value.ndim == 0 else sample(value.expand(self.total.shape))
        return value.detach().to(torch.float32 if value.dtype in HALVES else value.dtype, copy=True)


def sample(values: torch.Tensor) -> torch.Tensor:
    """Return at most SAMPLE elements as a view, spread evenly."""
    values = values.detach()
    while values.numel() > SAMPLE:
        dim = max(range(values.ndim), key=lambda d: values.shape[d])
        step = -(-values.numel() // SAMPLE) | 1
        values = values[(slice(None),) * dim + (slice(None, None, step),)]
    return values


def has_room(some: torch.Tensor) -> bool:
    """Whether the copies that are made of a sample fit; few elements always do."""
    return some.numel() <= _FEW or fits([some] * _COPIES)


def plain_name(operation: Operation) -> str:
    """Return `add` of `aten.add_`, `aten._foreach_add_` and the like."""
    base = operation.traits.name.rpartition(".")[2]
    return base.removeprefix("_foreach_").removesuffix("_")


def half_sums(operation: Operation) -> Iterator[tuple[int, HalfSum]]:
    """Yield the sums into a half total in an operation, each with its number among them."""
    name = plain_name(operation)
    if name not in _FUNCTIONS or not operation.args:
        return
    for n, total in _half_totals(operation.args[0]):
        args = [nth(a, n) for a in operation.args[1:]]
        kwargs = {k: nth(v, n) for k, v in operation.kwargs.items() if k not in operation.traits.writes}
        parts = tuple(tensors_of([*args, *kwargs.values()]))
        if not all(measurable(p) and p.device == total.device and _fits_into(p, total) for p in parts):
            continue
        if name.startswith("addc") and len(args) > 2:
            kwargs["value"] = args.pop()
        rate = _number([*args, *kwargs.values()][-1]) if name == "lerp" else None
        one = HalfSum(name, total, parts, _changed(operation, total), rate, tuple(args), kwargs)
        yield n, one
        # Either may be the total of a + b.
        if name == "add" and 0 not in operation.traits.writes and not kwargs and _alike(total, parts):
            in_place = _changed(operation, parts[0])
            yield n, replace(one, total=parts[0], parts=(total,), in_place=in_place, args=(total,))


def narrowing_copies(operation: Operation) -> Iterator[tuple[int, HalfSum]]:
    """Yield a wider value that is copied into a total in half, as a sum that was made in FP32."""
    if plain_name(operation) != "copy" or len(operation.args) < 2 or 0 not in operation.traits.writes:
        return
    source = operation.args[1]
    wider = isinstance(source, torch.Tensor) and source.is_floating_point() and source.dtype not in HALVES
    if not wider or not measurable(source):
        return
    for n, total in _half_totals(operation.args[0]):
        if total.shape == source.shape and total.device == source.device:
            yield n, HalfSum("copy", total, (source,), True, None, (source,))


def scalings(operation: Operation) -> Iterator[tuple[int, torch.Tensor, float]]:
    """Yield the half totals that an operation multiplies or divides by a number, each with its number among them.

    The number that it is multiplied by comes last.
    """
    name = plain_name(operation)
    if name not in {"mul", "div"} or len(operation.args) < 2:
        return
    for n, total in _half_totals(operation.args[0]):
        factor = _number(nth(operation.args[1], n))
        if factor:
            yield n, total, factor if name == "mul" else 1.0 / factor


def _half_totals(given: Any) -> Iterator[tuple[int, torch.Tensor]]:
    for n, total in enumerate(given if isinstance(given, (list, tuple)) else [given]):
        half = isinstance(total, torch.Tensor) and total.dtype in HALVES
        if half and total.numel() and measurable(total):
            yield n, total


def _changed(operation: Operation, total: torch.Tensor) -> bool:
    """Whether `total` is changed itself, as the first argument or as `out=`."""
    place = address(total), total.storage_offset()
    return any((address(w), w.storage_offset()) == place for w in operation.written())


def _fits_into(part: torch.Tensor, total: torch.Tensor) -> bool:
    """Whether `part` broadcasts to the shape of `total`."""
    own, whole = part.shape, total.shape
    return len(own) <= len(whole) and all(a in (1, b) for a, b in zip(reversed(own), reversed(whole), strict=False))


def _alike(total: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> bool:
    return len(parts) == 1 and (parts[0].dtype, parts[0].shape) == (total.dtype, total.shape)


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        known = value.numel() == 1 and value.device.type == "cpu" and measurable(value)
        return float(value) if known else None
    return float(value) if isinstance(value, (int, float)) else None
