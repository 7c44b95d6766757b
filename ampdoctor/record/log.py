"""What the step at hand has said so far, with numbers that are still on the device.

Rows are queued as functions of the fetched values, because a row is complete only when its transfer is.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ampdoctor.record.tensor_rows import TensorRows


class Deferred(NamedTuple):
    """A number or vector that will be there, at this place, once the step's transfer has arrived."""

    place: int


Scalar = float | Deferred | None


class Outcome(NamedTuple):
    """How one optimizer step ended: `skipped` is nonzero where the scaler saw a nonfinite gradient."""

    by_scaler: bool
    skipped: Scalar


class Finished(NamedTuple):
    """All rows of one step: as (table, row), and those of `tensors` by column."""

    rows: list[tuple[str, Any]]
    tensors: Sequence[TensorRows] = ()


class Values:
    """The fetched numbers of a step."""

    def __init__(self, vectors: Sequence[NDArray[np.float64]]) -> None:
        self._vectors = vectors

    def number(self, scalar: Scalar) -> float | None:
        """Return the number behind `scalar`."""
        if isinstance(scalar, Deferred):
            return float(self._vectors[scalar.place][0])
        return scalar

    def vector(self, key: Deferred) -> NDArray[np.float64]:
        """Return the numbers behind `key` as they were kept."""
        return self._vectors[key.place]


@dataclass
class StepLog:
    """Everything recorded of one step.

    Attributes:
        step: index of the step.
        reason: why it is examined; None where it is not.
        micro_batch: backward passes so far.
        scale: loss scale in force, once a scaler was used.
        pass_scale: loss scale that multiplies the gradients of the backward pass at hand; None where none does.
        hand_scale: number above 1 that code multiplied the loss of the last backward pass by; None where none did.
        losses: values that backward started from, with the loss scale in them.
        outcomes: per optimizer step, whether a scaler was asked and whether it saw a nonfinite gradient.
        grad_norm: what the user's clipping returned.
        lr: learning rate of the first parameter group.
        totals_watched: sums into totals in half were looked at.
        tensors: each returns rows of `tensors`, once the numbers have arrived.
        order: the places in its order that are left.
        departed: its transfer has started: what comes now comes too late.
    """

    step: int
    reason: str | None
    micro_batch: int = 0
    scale: Scalar = None
    pass_scale: Scalar = None
    hand_scale: float | None = None
    losses: list[tuple[Scalar, Scalar]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    grad_norm: Scalar = None
    lr: Scalar = None
    totals_watched: bool | None = None
    order: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _vectors: list[torch.Tensor] = field(default_factory=list)
    tensors: list[Callable[[Values], TensorRows]] = field(default_factory=list)
    departed: bool = False
    _rows: list[tuple[str, Callable[[Values], Any]]] = field(default_factory=list)

    @property
    def examined(self) -> bool:
        """Whether tensors are recorded on this step."""
        return self.reason is not None

    @property
    def kept(self) -> list[torch.Tensor]:
        """Vectors of ours that wait, or have waited, for the transfer."""
        return self._vectors

    @property
    def has_rows(self) -> bool:
        """Whether anything was queued."""
        return bool(self._rows)

    @property
    def begun(self) -> bool:
        """Whether the training has done anything in this step yet."""
        return self.micro_batch > 0 or bool(self.outcomes)

    def next_seq(self) -> int:
        """Return the next place in the order of the step."""
        return next(self.order)

    def next_seqs(self, count: int) -> list[int]:
        """Return the next `count` places."""
        return list(itertools.islice(self.order, count))

    def keep(self, vector: torch.Tensor) -> Deferred:
        """Queue a float64 vector for the transfer; backward passes may call from a thread per device.

        What comes once the transfer has started is dropped, and so are the rows that ask for it.
        """
        with self._lock:
            if not self.departed:
                self._vectors.append(vector)
            return Deferred(len(self._vectors) - 1)

    def scalar(self, value: Any) -> Scalar:
        """Take a number now where it is on the host, else queue a copy: the tensor may change before the transfer.

        What is no single number is None. So is a tensor of a class of its own: that of a distributed one would be asked
        of the other ranks.
        """
        if not isinstance(value, torch.Tensor):
            return float(value) if isinstance(value, Real) else None
        if _asks_its_class(value):
            return None
        if value.numel() != 1 or value.is_complex() or value.device.type == "meta":
            return None
        value = value.detach()
        if value.device.type == "cpu":
            return float(value.item())
        return self.keep(value.to(torch.float64, copy=True).reshape(1))

    def row(self, table: str, build: Callable[[Values], Any]) -> None:
        """Queue a row of `table`; `build` returns it, or None to leave it out."""
        with self._lock:
            if not self.departed:
                self._rows.append((table, build))

    def depart(self) -> Transfer:
        """Start the transfer of everything queued."""
        with self._lock:
            self.departed = True
        return Transfer(self._vectors)

    def finish(self, transfer: Transfer) -> Finished:
        """Return the finished rows; nothing is kept of what they were made from.

        It knows this log, and what knows each other in a circle waits for Python's collector.
        """
        values = Values(transfer.values())
        rows, self._rows = self._rows, []
        finishing, self.tensors = self.tensors, []
        built = [(table, build(values)) for table, build in rows]
        tensors = [measured for finish in finishing if len(measured := finish(values))]
        return Finished([(table, row) for table, row in built if row is not None], tensors)


def _asks_its_class(tensor: torch.Tensor) -> bool:
    """Whether operations on the tensor are the user's code, or that of a distributed or fake tensor."""
    kind: Any = type(tensor)
    return bool(kind.__torch_dispatch__ != torch.Tensor.__torch_dispatch__)
