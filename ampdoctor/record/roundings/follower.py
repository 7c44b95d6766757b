"""Looks at the operations that round whole numbers, phases and scaled tensors, and follows where those come from."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import fits
from ampdoctor.record.roundings.chunks import CHUNK, MOST_LOOKED_AT, chunks, finite_size
from ampdoctor.record.roundings.marks import Mark, together
from ampdoctor.record.roundings.narrow import NarrowCasts
from ampdoctor.record.roundings.scaled import FLOAT8
from ampdoctor.record.roundings.whole import changed_by, is_whole
from ampdoctor.record.tensors import HALVES, dtype_name
from ampdoctor.record.twin.kinds import has_memory
from ampdoctor.record.twin.local.natures import NARROW_INTEGERS, base_of
from ampdoctor.record.twin.operations import tensors_of, traits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampdoctor.record.twin.operations import Operation

MOST_OPERATIONS = 20_000
"""Operations watched of a step; each takes some ten microseconds more for it."""

_COPIES = 16
"""Copies of a half tensor that FP64 ones of its operands and of itself come to."""


class _Part(Enum):
    """What an operation has to do with roundings."""

    NONE = "none"
    CAST = "cast"
    COUNT = "count"
    """It makes whole numbers by itself."""
    PHASE = "phase"
    CLAMP = "clamp"
    COMBINE = "combine"
    """Its result comes from its operands, element by element or as an outer product."""
    MOVE = "move"
    COMPARE = "compare"
    SEND = "send"


_PARTS = {
    _Part.CAST: "_to_copy copy_",
    _Part.COUNT: "arange cumsum",
    _Part.PHASE: "sin sin_ cos cos_ polar",
    _Part.CLAMP: "clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_",
    _Part.COMBINE: "mul mul_ div div_ add add_ sub sub_ rsub mm bmm ger addmm",
    _Part.MOVE: "clone cat stack index index_select gather repeat repeat_interleave neg where flip",
    _Part.COMPARE: "eq ne",
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names.split()}
_KEEPS_WHOLE = frozenset({"mul", "add", "sub", "rsub"})
_MATMULS = frozenset({"mm", "bmm", "addmm"})
_SENDS = frozenset({"c10d", "_c10d_functional"})


@cache
def _part_of(function: Any) -> _Part:
    namespace, _, base = traits_of(function).name.partition(".")
    if namespace in _SENDS:
        return _Part.SEND
    return _PART_OF.get(base, _Part.NONE) if namespace == "aten" else _Part.NONE


class Roundings(NarrowCasts):
    """A Follower of operations on the CPU.

    Args:
        enough: called once there is no more to be looked at: after MOST_OPERATIONS, and where a tensor of another
            device comes by, at which nothing can be looked without waiting for it.
    """

    def __init__(self, enough: Callable[[], None]) -> None:
        super().__init__()
        self.not_twinned: Counter[str] = Counter()
        self._enough = enough
        self._released = False

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        """Look at an operation that is about to run; returns what to call with its result."""
        if self._released:
            return None
        self.operations += 1
        if self.operations == MOST_OPERATIONS:
            self._enough()
        part = _part_of(operation.function)
        if part is _Part.NONE:
            return None
        tensors = [*tensors_of((*operation.args, *operation.kwargs.values()))]
        if any(t.device.type not in {"cpu", "meta"} for t in tensors):
            self._enough()
            return None
        if not all(has_memory(t) for t in tensors):
            return None
        return self._looked(part, operation, list(_operands(operation)))

    def release(self) -> None:
        """Look no further, and let go of everything that was followed."""
        self._released = True
        self._marks.clear()
        self._kept.clear()

    def _looked(
        self, part: _Part, operation: Operation, tensors: Sequence[torch.Tensor]
    ) -> Callable[[Any], None] | None:
        match part:
            case _Part.CAST:
                source = tensors[-1]
                clamped = self._marks.of(source).clamped
                return lambda result: self._cast(operation, source, result, clamped)
            case _Part.COUNT:
                return lambda result: self._counted(operation, tensors, result)
            case _Part.PHASE:
                return self._phases(operation, tensors[-1])
            case _Part.CLAMP:
                return self._clamped(operation, tensors[0])
            case _Part.COMBINE | _Part.MOVE if len(self._marks):
                return self._combined(part, operation, tensors)
            case _Part.COMPARE:
                self._used(tensors, "equal")
            case _Part.SEND:
                self._sent(operation, tensors)
            case _:
                pass
        return None

    def _used(self, tensors: Sequence[torch.Tensor], use: str) -> None:
        for mark in self._marks.all_of(tensors) if len(self._marks) else ():
            for uses in mark.uses:
                uses.add(use)

    def _cast(self, operation: Operation, source: torch.Tensor, result: torch.Tensor, clamped: Any) -> None:
        mark = self._marks.of(source)
        if not source.is_floating_point() and source.is_complex():
            return
        if source.shape != result.shape:
            source = source.detach().expand(result.shape)
        if result.dtype in FLOAT8:
            self._narrowed(operation, source, result, clamped)
        elif result.dtype in HALVES:
            self._halved(operation, source, result, mark)
        elif result.is_floating_point():
            origin = dtype_name(source.dtype) if source.dtype in HALVES else mark.rounded
            self._marks.put(result, mark.onward(whole=mark.whole, rounded=origin))
        elif result.dtype not in NARROW_INTEGERS and source.is_floating_point():
            self._used([source], "integer")

    def _halved(self, operation: Operation, source: torch.Tensor, result: torch.Tensor, mark: Mark) -> None:
        if source.dtype in HALVES or source.dtype in NARROW_INTEGERS or source.dtype in FLOAT8:
            self._marks.put(result, mark.onward(whole=source.dtype in NARROW_INTEGERS))
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._keep(source, result)
        whole = mark.whole or is_whole(source)
        uses = self._changed(operation, source, result) if whole else None
        self._marks.put(result, mark.onward(whole=whole).and_uses(uses))

    def _counted(self, operation: Operation, tensors: Sequence[torch.Tensor], result: torch.Tensor) -> None:
        if not result.is_floating_point() or result.device.type != "cpu":
            return
        if result.dtype not in HALVES:
            self._marks.put(result, Mark(whole=is_whole(result)))
            return
        if not _repeatable(operation, result):
            self._marks.put(result, Mark())
            return
        kwargs = {k: v for k, v in operation.kwargs.items() if k != "dtype"}
        args = [t.double() if isinstance(t, torch.Tensor) else t for t in operation.args]
        if tensors and not is_whole(tensors[0]):
            return
        wide = {} if tensors else {"dtype": torch.float64}
        exact = operation.function(*args, **kwargs, **wide)
        if not is_whole(exact):
            return
        dtype = dtype_name(tensors[0].dtype) if tensors else "int64"
        uses = self._changed(operation, exact, result, dtype)
        self._marks.put(result, Mark(whole=True).and_uses(uses))

    def _changed(
        self, operation: Operation, exact: torch.Tensor, result: torch.Tensor, dtype: str | None = None
    ) -> set[str] | None:
        """Tell of whole numbers that `result` does not hold as they are; returns where to note what they lead to."""
        found = changed_by(exact.detach(), result.detach())
        if found is None:
            return None
        dtypes = dtype or dtype_name(exact.dtype), dtype_name(result.dtype)
        totals = self._at("integers", operation, dtypes)
        if totals is None:
            return None
        self.rows.integers(totals, found)
        uses: set[str] = totals.led_to
        return uses

    def _phases(self, operation: Operation, values: torch.Tensor) -> Callable[[Any], None] | None:
        mark = self._marks.of(values)
        rounded = dtype_name(values.dtype) if values.dtype in HALVES else mark.rounded
        base = base_of(operation.traits.name).rstrip("_")
        for uses in mark.uses:
            uses.add("cos" if base == "polar" else base)
        if rounded is None or not values.numel():
            return None
        totals = self._at("phases", operation, (dtype_name(values.dtype), rounded))
        if totals is None:
            return None
        sizes = (finite_size(part) for (part,) in chunks(values))
        numbers = [(float(size.max()), float(size.square().sum())) for size in sizes]
        totals.add(values.numel(), max(largest for largest, _ in numbers))
        totals.squares += sum(squares for _, squares in numbers)
        mark = Mark(turns=(totals.led_to,))
        return lambda result: self._marks.put(result, mark)

    def _combined(
        self, part: _Part, operation: Operation, tensors: Sequence[torch.Tensor]
    ) -> Callable[[Any], None] | None:
        marks = self._marks.all_of(tensors)
        base = base_of(operation.traits.name)
        if not any(marks) or (base in _MATMULS and tensors[-1].shape[-2] != 1):
            return lambda result: self._marks.put(result, Mark())
        both = together(marks)
        if part is _Part.MOVE:
            moved = [m for m, t in zip(marks, tensors, strict=True) if t.is_floating_point()]
            whole = bool(moved) and moved[0].whole
            rounded = next((m.rounded for m in marks if m.rounded), None)
            return lambda result: self._made(result, both.onward(whole=whole, rounded=rounded))
        if base.startswith(("mul", "div")):
            _note_products(marks, tensors)
            both = Mark(uses=both.uses)
        numbers = [a for a in operation.args if isinstance(a, (int, float))]
        whole = base in _KEEPS_WHOLE and all(m.whole for m in marks)
        whole = whole and all(float(n).is_integer() for n in numbers)
        mark = both.onward(whole=whole, rounded=_frequencies(marks, tensors))
        halves = any(t.dtype in HALVES for t in tensors)
        counted = operation if whole and halves and not both.uses else None
        return lambda result: self._made(result, mark, counted)

    def _made(self, result: torch.Tensor, mark: Mark, operation: Operation | None = None) -> None:
        """Note where a result comes from; whole numbers made in half by `operation` may be beyond what that holds."""
        if result.dtype in HALVES:
            if operation is not None and _repeatable(operation, result):
                args = [a.double() if isinstance(a, torch.Tensor) else a for a in operation.args]
                exact = operation.function(*args, **operation.kwargs)
                uses = self._changed(operation, exact, result, dtype_name(result.dtype))
                mark = mark.and_uses(uses)
            mark = mark.onward(whole=mark.whole)  # what is half shows by itself
        self._marks.put(result, mark)


def _repeatable(operation: Operation, result: torch.Tensor) -> bool:
    """Whether it may be executed once more, in FP64: never what writes, as that would change the training."""
    few = result.numel() <= CHUNK
    return not operation.traits.writes and (few or (result.numel() <= MOST_LOOKED_AT and fits([result] * _COPIES)))


def _operands(operation: Operation) -> Iterator[torch.Tensor]:
    """Yield the tensors that go in; `out=` does not."""
    yield from tensors_of(operation.args)
    for name, value in operation.kwargs.items():
        if name not in operation.traits.writes:
            yield from tensors_of(value)


def _frequencies(marks: Sequence[Mark], tensors: Sequence[torch.Tensor]) -> str | None:
    """Return the half dtype that phases, made of whole numbers and frequencies, have been rounded to.

    Frequencies that were rounded once and meet no whole numbers are frequencies like any others.
    """
    rounded = next((m.rounded for m in marks if m.rounded), None)
    if rounded is None:
        return None
    others = [(m, t) for m, t in zip(marks, tensors, strict=True) if not m.rounded]
    return rounded if all(m.whole or is_whole(t) for m, t in others) else None


def _note_products(marks: Sequence[Mark], tensors: Sequence[torch.Tensor]) -> None:
    """Note where a sine turns other values, and where whole numbers weigh what gradients flow through."""
    for mark in marks:
        for other, tensor in zip(marks, tensors, strict=True):
            if other is mark or not _many(tensor):
                continue
            if not other.turns:
                for turns in mark.turns:
                    turns.add("product")
            if tensor.requires_grad and not tensor.is_leaf:
                for uses in mark.uses:
                    uses.add("weight")


def _many(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and (tensor.is_floating_point() or tensor.is_complex())
