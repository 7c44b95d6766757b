"""Measures the tensors of one examined step and queues their rows: one place for all roles.

What runs here runs for every tensor of a model, inside the training's own calls: it notes what is known, has the
kernel look at the values, and leaves the rest to the end of the step.
"""

from __future__ import annotations

import sys
import threading
import weakref
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.shards import Part, local_part, part_of
from ampdoctor.record.stats import StatisticsTable, described_as_it_is, fast_vector, measurable
from ampdoctor.record.stats.sampling import DRAWN, ERROR, draw, scaled_up
from ampdoctor.record.tensor_rows import Later, TensorRows
from ampdoctor.record.tensors import dtype_name, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampdoctor.record.log import Deferred, Scalar, StepLog, Values
    from ampdoctor.record.stats.sampling import Whole


_made = tuple.__new__
"""Makes a named tuple in a fifth of the time that its class takes: there are thousands in a step."""


class Context(NamedTuple):
    """The call of a module that a tensor belongs to."""

    call: int = 0
    autocast: str | None = None
    grad_enabled: bool = True


NO_CALL = Context()


class TensorLog:
    """The tensors of one examined step, each measured once.

    Args:
        log: the step that the rows belong to.
        observer: shown each tensor too, with its site and the number of the module's call.
        sample_above: draw a sample of tensors on the CPU with more elements; None to count all.
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
        known = (
            self.log.micro_batch, self.log.next_seq(), *site, call, dtype_name(dtype or tensor.dtype), values.shape,
            values.numel() * (2 if values.is_complex() else 1), autocast, grad_enabled, cast_to,
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
            self._later.append(_made(Later, (row, inputs, scale, numbers, extra[1] if extra else ())))
        if self._observer is not None:
            self._observer(values, site, context.call)
        return row

    def add_all(
        self,
        tensors: Iterable[tuple[torch.Tensor, tuple[str, str, str]]],
        *,
        scale: Scalar = None,
        parts: Iterable[Part | None] = (),
        remember: bool = False,
    ) -> None:
        """Measure tensors and queue their rows as `add` does, but all at once: many are small, and calls cost more.

        Args:
            tensors: each with its site.
            scale: loss scale that multiplies the values.
            parts: which part of a tensor that is spread over ranks each is, where they do not know themselves.
            remember: modules may be called with them; their rows are then `known`.
        """
        log, plain = self.log, self._observer is None and not self.log.departed
        measured: list[torch.Tensor] = []
        described: list[tuple[int, int, int]] = []
        known: list[Any] = []
        for (tensor, site), part in zip(tensors, chain(parts, repeat(None))):  # noqa: B905 - the latter has no end
            found = described_as_it_is(tensor) if plain and part is None and measurable(tensor) else None
            if found is None or found[2] > self._sample_above:
                self.add(tensor, site, scale=scale, part=part)
                continue
            measured.append(tensor)
            described.append(found)
            known += (
                log.micro_batch, log.next_seq(), *site, 0, dtype_name(tensor.dtype), tensor.shape, found[2], None, True,
                None,
            )  # fmt: skip
        if measured:
            self._measure_all(measured, described, known, scale, remember=remember)

    def _measure_all(
        self,
        tensors: list[torch.Tensor],
        described: list[tuple[int, int, int]],
        known: list[Any],
        scale: Scalar,
        *,
        remember: bool,
    ) -> None:
        with self._lock:
            first = self._rows
            self._table.measure_all(first, described)
            self._known += known
            self._rows += len(tensors)
        if scale is not None:
            self._scaled.append((range(first, first + len(tensors)), scale))
        if remember:
            for row, tensor in enumerate(tensors, first):
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
