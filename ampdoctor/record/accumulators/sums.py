"""Sums of a total in half and an increment, beside what they come to in FP32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampdoctor.record.twin.operations import Operation

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "lerp": torch.lerp, "addcmul": torch.addcmul, "addcdiv": torch.addcdiv,
}  # fmt: skip

MOST_ELEMENTS = 1 << 26
"""Elements that are looked at together: three FP32 copies of each are held for a moment."""


@dataclass(frozen=True)
class Scaled:
    """A total that was multiplied by a number, and what it was before in FP32."""

    before: torch.Tensor
    factor: float


@dataclass
class HalfSum:
    """One total and what is added to it, taken before the operation runs.

    Attributes:
        name: add, sub, lerp, addcmul or addcdiv.
        total: the total in half.
        parts: the tensors that the increment is made of.
        in_place: the total is changed itself.
        rate: share of the way to its argument that a lerp goes, where it is a number.
        before: its value in FP32.
        exact: the sum in FP32.
    """

    name: str
    total: torch.Tensor
    parts: tuple[torch.Tensor, ...]
    in_place: bool
    rate: float | None
    before: torch.Tensor
    exact: torch.Tensor

    def since(self, scaled: Scaled) -> HalfSum:
        """Return the sum as one with the multiplication of the total before it: d * total + increment."""
        exact = scaled.before * scaled.factor + (self.exact - self.before)
        return replace(self, before=scaled.before, exact=exact, rate=1.0 - scaled.factor)

    def numbers(self, result: torch.Tensor) -> torch.Tensor:
        """Return what the run has come to as a float64 vector: elements, those that FP32 would have changed, those of
        them that kept their value, the sum of squares of all changes and of theirs, the largest magnitude."""
        increment = self.exact - self.before
        same = result.detach().float() == self.before
        absorbed = same & (increment != 0) & torch.isfinite(self.exact)
        squares = increment.double().square()
        numbers = [
            torch.full_like(squares.sum(), float(result.numel())), torch.count_nonzero(increment), absorbed.sum(),
            squares.sum(), torch.where(absorbed, squares, 0.0).sum(), self.before.abs().amax(),
        ]  # fmt: skip
        return torch.stack([n.double() for n in numbers])


def plain_name(operation: Operation) -> str:
    """Return `add` of `aten.add_`, `aten._foreach_add_` and the like."""
    base = operation.traits.name.rpartition(".")[2]
    return base.removeprefix("_foreach_").removesuffix("_")


def half_sums(operation: Operation) -> Iterator[tuple[int, HalfSum]]:
    """Yield the sums into a half total in an operation, each with its number among them."""
    name = plain_name(operation)
    if name not in _FUNCTIONS or not operation.args:
        return
    for n, total in _half_totals(operation.args[0], MOST_ELEMENTS):
        args = [_nth(a, n) for a in operation.args[1:]]
        kwargs = {k: _nth(v, n) for k, v in operation.kwargs.items()}
        parts = tuple(tensors_of([*args, *kwargs.values()]))
        if not all(measurable(p) and p.device == total.device for p in parts):
            continue
        if name.startswith("addc") and len(args) > 2:
            kwargs["value"] = args.pop()
        rate = _number([*args, *kwargs.values()][-1]) if name == "lerp" else None
        before = total.detach().float()
        wide = {k: _wide(v) for k, v in kwargs.items()}
        exact = _FUNCTIONS[name](before, *map(_wide, args), **wide)
        if exact.shape == total.shape and exact.is_floating_point():
            in_place = bool(operation.traits.writes)
            yield n, HalfSum(name, total, parts, in_place, rate, before, exact.float())
            # Either may be the total of a + b.
            if name == "add" and not in_place and not kwargs and _alike(total, parts):
                other = parts[0].detach().float()
                yield n, HalfSum(name, parts[0], (total,), in_place, None, other, exact.float())


def narrowing_copies(operation: Operation) -> Iterator[tuple[int, HalfSum]]:
    """Yield a wider value that is copied into a total in half, as a sum that was made in FP32."""
    if plain_name(operation) != "copy" or len(operation.args) < 2:
        return
    source = operation.args[1]
    wider = isinstance(source, torch.Tensor) and source.is_floating_point() and source.dtype not in HALVES
    if not wider or not measurable(source):
        return
    for n, total in _half_totals(operation.args[0], MOST_ELEMENTS):
        if total.shape == source.shape and total.device == source.device:
            exact = source.detach().float()
            yield n, HalfSum("copy", total, (source,), True, None, total.detach().float(), exact)


def scalings(operation: Operation, room: int) -> Iterator[tuple[int, torch.Tensor, Scaled]]:
    """Yield the half totals that an operation multiplies or divides by a number, each with its number among them."""
    name = plain_name(operation)
    if name not in {"mul", "div"} or len(operation.args) < 2:
        return
    for n, total in _half_totals(operation.args[0], room):
        factor = _number(_nth(operation.args[1], n))
        if factor:
            before = total.detach().float()
            yield n, total, Scaled(before, factor if name == "mul" else 1.0 / factor)


def _half_totals(given: Any, room: int) -> Iterator[tuple[int, torch.Tensor]]:
    for n, total in enumerate(given if isinstance(given, (list, tuple)) else [given]):
        if not isinstance(total, torch.Tensor) or total.dtype not in HALVES:
            continue
        room -= total.numel()
        if room < 0:
            return
        if total.numel() and measurable(total):
            yield n, total


def _alike(total: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> bool:
    return len(parts) == 1 and (parts[0].dtype, parts[0].shape) == (total.dtype, total.shape)


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        known = value.numel() == 1 and value.device.type == "cpu" and measurable(value)
        return float(value) if known else None
    return float(value) if isinstance(value, (int, float)) else None


def _nth(value: Any, n: int) -> Any:
    return value[n] if isinstance(value, (list, tuple)) else value


def _wide(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in HALVES
    return value.detach().float() if half else value
