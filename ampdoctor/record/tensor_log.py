"""Measures the tensors of one examined step and queues their rows: one place for all roles.

What runs here runs for every tensor of a model, inside the training's own calls: it notes what is known, has the
kernel look at the values, and leaves the rest to the end of the step.
"""

from __future__ import annotations

import sys
import threading
import weakref
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.named_tuples import made
from ampdoctor.record.shards import Part, local_part, part_of
from ampdoctor.record.stats import DTYPES, FEW, StatisticsTable, fast_vector, measurable, note_known, places_of
from ampdoctor.record.stats.sampling import DRAWN, ERROR, draw, scaled_up
from ampdoctor.record.tensor_rows import Later, TensorRows
from ampdoctor.record.tensors import dtype_name, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ampdoctor.record.log import Deferred, Scalar, StepLog, Values
    from ampdoctor.record.stats.sampling import Whole


class Context(NamedTuple):
    """The call of a module that a tensor belongs to."""

    call: int = 0
    autocast: str | None = None
    grad_enabled: bool = True


NO_CALL = Context()

NAMES = tuple(map(dtype_name, DTYPES))
"""Of the dtypes that the kernel reads, by its number for them."""


class TensorLog:
    """The tensors of one examined step, each measured once.

    Args:
        log: the step that the rows belong to.
        observer: shown each tensor too, with its site and the number of the module's call.
        sample_above: draw a sample of tensors on the CPU with more elements; None to count all.

    Attributes:
        plainly: each tensor is counted whole, and nobody else is shown it.
    """

    def __init__(
        self,
        log: StepLog,
        observer: Callable[[torch.Tensor, tuple[str, str, str], int], None] | None = None,
        sample_above: int | None = None,
    ) -> None:
        self.log = log
        log.tensors.append(self.rows)
        self._observer = observer
        self._table = StatisticsTable()
        self._known: list[Any] = []
        self._rows = 0
        self._later: list[Later] = []
        self._scaled: list[tuple[range, Scalar]] = []
        self._sample_above = sys.maxsize if sample_above is None else sample_above
        self.plainly = observer is None and sample_above is None
        self._samples: dict[int, Whole] = {}
        self._parts: dict[int, Part] = {}
        self._on_their_way: dict[int, Deferred] = {}
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}
        self._lock = threading.Lock()  # backward passes call from a thread per device

    def known(self, tensor: torch.Tensor) -> int | None:
        """Return the row of a tensor measured before in this step and not changed in place since."""
        entry = self._seen.get(id(tensor))
        if entry is None or entry[0]() is not tensor or entry[1] != version_of(tensor):
            return None
        return entry[2]

    def add(  # noqa: PLR0913 - what a row says, by keyword
        self,
        tensor: torch.Tensor,
        site: tuple[str, str, str],
        *,
        inputs: Sequence[int] | None = None,
        scale: Scalar = None,
        extra: tuple[torch.Tensor, Sequence[str]] | None = None,
        context: Context = NO_CALL,
        dtype: torch.dtype | None = None,
        cast_to: str | None = None,
        part: Part | None = None,
    ) -> int | None:
        """Measure `tensor` and queue its row; returns the row, None where it can't be measured.

        Args:
            tensor: any tensor.
            site: module path, role, slot.
            inputs: rows of the tensors that went into it, for `inputs_finite`.
            scale: loss scale that multiplies the values.
            extra: numbers for further columns, and their names.
            context: the call of a module that it belongs to.
            dtype: what to call its dtype, where that is not its own.
            cast_to: the dtype that it is cast to next.
            part: which part of a tensor that is spread over ranks it is, where it does not know itself.
        """
        values = local_part(tensor)
        if not measurable(values) or self.log.departed:
            return None
        call, autocast, grad_enabled = context
        numel = values.numel() * (2 if values.is_complex() else 1)
        known = (
            self.log.micro_batch, self.log.next_seq(), *site, call, dtype_name(dtype or tensor.dtype), values.shape,
            numel, autocast, grad_enabled, cast_to,
        )  # fmt: skip
        with self._lock:
            row = self._rows
            if not self._measure(row, values):
                return None
            self._known += known
            self._rows += 1
        part = part_of(tensor) if values is not tensor else part
        if part is not None:
            self._parts[row] = part
        if extra is None:
            self._seen[id(tensor)] = (weakref.ref(tensor), version_of(tensor), row)
        if extra is not None or inputs is not None or scale is not None:
            numbers = self.log.keep(extra[0]) if extra else None
            self._later.append(made(Later, (row, inputs, scale, numbers, extra[1] if extra else ())))
        if self._observer is not None:
            self._observer(values, site, context.call)
        return row

    def add_few(
        self,
        tensors: list[torch.Tensor],
        sites: list[tuple[str, str, str]],
        contexts: list[Context],
        *,
        inputs: list[int] | None = None,
        scale: Scalar = None,
    ) -> int | None:
        """Measure tensors and queue their rows as `add` does, all with one look: None where that can't be done.

        Returns the row of the last, whose inputs are the others and `inputs`, where these are given: of a module's call
        that is the output, and the others are weights that were not met before.
        """
        log, count = self.log, len(tensors)
        if not self.plainly or note_known is None or count > FEW or log.departed:
            return None
        with self._lock:
            first = self._rows
            described = self._table.measure_few(first, tensors)
            if not described:
                return None
            note_known(
                described, tensors, sites, contexts, NAMES, log.micro_batch, log.order, self._known, self._seen, first
            )
            self._rows += count
        last = first + count - 1
        if inputs is not None or scale is not None:
            sources = None if inputs is None else [*inputs, *range(first, last)]
            self._later.append(made(Later, (last, sources, scale, None, ())))
        return last

    def add_all(
        self,
        role: str,
        tensors: list[torch.Tensor],
        names: list[tuple[str, str]],
        *,
        scale: Scalar = None,
        parts: Sequence[Part | None] = (),
        remember: bool = False,
    ) -> None:
        """Measure tensors and queue their rows as `add` does, but all at once: many are small, and calls cost more.

        Args:
            role: what they are.
            tensors: any tensors.
            names: the module path and slot of each.
            scale: loss scale that multiplies the values.
            parts: which part of a tensor that is spread over ranks each is, where they do not know themselves.
            remember: modules may be called with them; their rows are then `known`.
        """
        plain = self._observer is None and not self.log.departed and not any(parts)
        places = places_of(tensors) if plain and tensors else None
        if places is None or bool((places[:, 2] > self._sample_above).any()):
            for tensor, (path, slot), part in zip_longest(tensors, names, parts):
                self.add(tensor, (path, role, slot), scale=scale, part=part)
            return
        rows = self.add_places(role, places, [t.shape for t in tensors], names, scale=scale)
        if remember:
            self._remember(rows, tensors)

    def add_places(
        self,
        role: str,
        places: NDArray[np.int64],
        shapes: Sequence[tuple[int, ...]],
        names: list[tuple[str, str]],
        *,
        scale: Scalar = None,
    ) -> range:
        """Do what `add_all` does, of numbers at known places in memory; returns the rows."""
        log, count = self.log, len(places)
        kinds, _, sizes = places.T.tolist()
        dtypes = [NAMES[kind] for kind in kinds]
        paths, slots = zip(*names, strict=True)
        known = zip(
            repeat(log.micro_batch), log.next_seqs(count), paths, repeat(role), slots, repeat(0, count), dtypes, shapes,
            sizes, repeat(None), repeat(True), repeat(None), strict=False,
        )  # fmt: skip
        with self._lock:
            first = self._rows
            self._table.measure_all(first, places)
            self._known += chain.from_iterable(known)
            self._rows += count
        rows = range(first, first + count)
        if scale is not None:
            self._scaled.append((rows, scale))
        return rows

    def _remember(self, rows: range, tensors: list[torch.Tensor]) -> None:
        for row, tensor in zip(rows, tensors, strict=True):
            self._seen[id(tensor)] = (weakref.ref(tensor), version_of(tensor), row)

    def rows(self, values: Values) -> TensorRows:
        """Return the finished rows, once the step's numbers have arrived; nothing is kept of them.

        Hooks in the graph of the step know this object, and a loss that is kept keeps its graph.
        """
        with self._lock:
            known, self._known = self._known, []
            count, self._rows = self._rows, 0
            self._seen = {}
        arrived = {row: values.vector(key) for row, key in self._on_their_way.items() if row < count}
        samples = {row: whole for row, whole in self._samples.items() if row < count}
        measured = scaled_up(self._table.filled(count, arrived), samples)
        rows = TensorRows(self.log.step, known, self._later, measured, values)
        for several, scale in self._scaled:
            rows.note_all("loss_scale", several, values.number(scale))
        self._table, self._later, self._scaled = StatisticsTable(), [], []
        for row in samples:
            rows.note("sampled", row, DRAWN)
            rows.note("sample_error", row, ERROR)
        for row, part in self._parts.items():
            if row < count:
                rows.note("part", row, part.number)
                rows.note("parts", row, part.parts)
                rows.note("whole_shape", row, part.shape)
        return rows

    def _measure(self, row: int, tensor: torch.Tensor) -> bool:
        """Take its statistics; return False where there is no memory left on the device for that."""
        # An interrupt may have left something of a row that then came to nothing.
        self._samples.pop(row, None)
        self._on_their_way.pop(row, None)
        try:
            if tensor.is_cpu:
                sample = draw(tensor) if tensor.numel() > self._sample_above else None
                if sample is not None:
                    self._samples[row] = sample.whole
                self._table.measure(row, tensor if sample is None else sample.values)
            else:
                self._table.reserve(row)
                self._on_their_way[row] = self.log.keep(fast_vector(tensor))
        except torch.cuda.OutOfMemoryError:
            # The user's own step may still fit: this row is given up, and nothing else.
            return False
        return True
