"""Follows the operations of one step and takes down the sums into totals that are kept in half.

A total is kept where it was there before the step, or where the same line has added to it before. Sums that autograd
records, those of a backward pass, and changes of the weights themselves are none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.accumulators.origins import GRADIENT, WEIGHT, Origins, address, has_storage
from ampdoctor.record.accumulators.rows import Group, SumRows
from ampdoctor.record.accumulators.sums import (
    MOST_ELEMENTS,
    Scaled,
    half_sums,
    has_room,
    narrowing_copies,
    plain_name,
    sample,
    scalings,
)
from ampdoctor.record.callsite import full_call_site
from ampdoctor.record.quiet import in_backward
from ampdoctor.record.tensors import HALVES, dtype_name
from ampdoctor.record.twin.operations import Kind, nth, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ampdoctor.record.accumulators.origins import Origin
    from ampdoctor.record.accumulators.sums import HalfSum, Values
    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.state import State
    from ampdoctor.record.twin.operations import Operation

_TOLD = frozenset({WEIGHT, GRADIENT})


class Accumulators:
    """The accumulators of a step; a Follower.

    Args:
        state: the recorder's.
        weights: what optimizers train.
        spent: asked before each operation whether looking has taken its time for the step; it then looks no further.

    Attributes:
        not_twinned: none; the protocol asks for it.
    """

    def __init__(self, state: State, weights: Sequence[torch.Tensor], spent: Callable[[], bool]) -> None:
        self.not_twinned: Counter[str] = Counter()
        self._state, self._spent = state, spent
        self._origins = Origins(weights)
        self._rows = SumRows()
        self._by_line: set[tuple[CallSite, int]] = set()
        self._added_to: set[int] = set()
        self._scaled: dict[int, Scaled] = {}
        self._room = MOST_ELEMENTS

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        """Look at an operation that is about to run; returns what to call with the run's result."""
        if self._spent():
            self._scaled.clear()
            return None
        if operation.traits.kind in {Kind.VIEW, Kind.READ} or self._state.replaying:
            return None
        tensors = list(tensors_of((*operation.args, *operation.kwargs.values())))
        if not all(map(has_storage, tensors)):
            return None
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if recorded:
            self._origins.meet(tensors)
        if recorded or in_backward():
            origins = frozenset({GRADIENT} if in_backward() else ())
            return lambda result: self._made(operation, result, origins)
        return self._outside(operation, tensors)

    def finish(self, log: StepLog) -> None:
        """Queue the rows."""
        self._rows.queue(log)

    def _outside(self, operation: Operation, tensors: Sequence[torch.Tensor]) -> Callable[[Any], None]:
        """Look at an operation that nothing of autograd's is in."""
        origins = self._origins.of(tensors)
        if plain_name(operation) == "sub":
            self._see_compensation(tensors)
        sums: dict[int, tuple[HalfSum, Values, Group]] = {}
        room = MOST_ELEMENTS
        for n, one in (*half_sums(operation), *narrowing_copies(operation)):
            if n not in sums and room > 0 and (found := self._kept(one)):
                sums[n] = found
                room -= found[1].before.numel()
        scaled = list(self._scalings(operation))
        in_place = 0 in operation.traits.writes

        def then(result: Any) -> None:
            self._made(operation, result, origins)
            for n, total, scaling in scaled:
                self._scale(total if in_place else nth(result, n), scaling)
            for n, (one, values, group) in sums.items():
                # In place, a _foreach_ operation returns nothing.
                self._take(one, values, group, one.total if one.in_place else nth(result, n))

        return then

    def _made(self, operation: Operation, result: Any, origins: frozenset[Origin]) -> None:
        if operation.traits.writes:
            self._origins.change(operation.written(), origins)
        else:
            self._origins.make(tensors_of(result), origins)

    def _scale(self, total: Any, scaling: Scaled) -> None:
        """A total was multiplied: what is added to it next makes it an average."""
        if isinstance(total, torch.Tensor) and total.dtype in HALVES:
            self._forget(address(total))
            self._room -= scaling.before.numel()
            self._scaled[address(total)] = scaling

    def _forget(self, place: int) -> Scaled | None:
        scaling = self._scaled.pop(place, None)
        if scaling is not None:
            self._room += scaling.before.numel()
        return scaling

    def _scalings(self, operation: Operation) -> Iterator[tuple[int, torch.Tensor, Scaled]]:
        """Yield the totals that are multiplied by a number and may be kept; of others no value is looked at."""
        room = self._room
        for n, total, factor in scalings(operation):
            known = self._origins.was_there(total) or address(total) in self._added_to
            if not known or WEIGHT in self._origins.of([total]):
                continue
            some = sample(total)
            if some.numel() <= room and has_room(some):
                room -= some.numel()
                yield n, total, Scaled(some.float(), factor)

    def _kept(self, one: HalfSum) -> tuple[HalfSum, Values, Group] | None:
        """Return a sum, its values and where it belongs; None where its total is not kept."""
        place, made_from = address(one.total), self._origins.of([one.total])
        increment = self._origins.of(one.parts)
        if WEIGHT in made_from or (one.name == "copy" and place not in increment):
            return None
        scaling, there = self._forget(place), self._origins.was_there(one.total)
        total = self._is_total(one, there, made_from, increment, scaled=scaling is not None)
        if not total and not one.in_place and place not in self._added_to:
            return None
        source = full_call_site()
        if not total and (source, place) not in self._by_line:
            if one.in_place:
                self._add(source, place)
            return None
        values = one.values()
        if values is None:
            return None
        if scaling is not None and scaling.before.shape == values.before.shape:
            values = values.since(scaling)
        average = one.name == "lerp" or scaling is not None or place in increment
        added = next((o for o in (WEIGHT, GRADIENT) if o in increment), None)
        lasting = there or any(isinstance(o, int) for o in made_from)
        kind = "average" if average else "sum"
        dtype = dtype_name(one.total.dtype)
        return one, values, Group(source, one.name, kind, added, dtype, values.rate, lasting)

    def _add(self, source: CallSite, place: int) -> None:
        self._by_line.add((source, place))
        self._added_to.add(place)

    def _is_total(
        self, one: HalfSum, there: bool, made_from: Iterable[Origin], increment: frozenset[Origin], *, scaled: bool
    ) -> bool:
        """Whether a total is kept by what is known of it; else the line may have added to it before."""
        if one.in_place:
            return there
        # What is made anew may be a batch, or anything: not so a number, or where weights or gradients go in.
        from_kept = there or (scaled and any(isinstance(o, int) for o in made_from))
        return from_kept and (one.total.numel() == 1 or bool(_TOLD & increment))

    def _take(self, one: HalfSum, values: Values, group: Group, result: Any) -> None:
        if not isinstance(result, torch.Tensor) or result.dtype not in HALVES:
            return
        with torch.no_grad():
            vector = values.numbers(result)
        own = address(one.total)
        origins = frozenset(o for o in self._origins.of([one.total]) if isinstance(o, int))
        # A row of a table is a total of its own.
        identity = frozenset({*(origins or {own}), ("at", one.total.storage_offset())})
        self._rows.add(group, vector, origins | {own}, identity)
        self._add(group.source, address(result))

    def _see_compensation(self, tensors: Sequence[torch.Tensor]) -> None:
        """Two values of one total are subtracted after a sum: that is how what rounding took is found (Kahan)."""
        if len(tensors) == 2:
            first, second = ({address(t), *self._origins.of([t])} for t in tensors)
            self._rows.compensate(first & second)
