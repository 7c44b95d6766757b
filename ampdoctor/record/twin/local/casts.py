"""Casts to a narrow format, whose FP32 result is their input; and whole numbers that they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ampdoctor.record.twin.local.measures import Measure, pieces
from ampdoctor.record.twin.local.natures import can_lose, plain

if TYPE_CHECKING:
    from ampdoctor.record.twin.local.measures import Measured
    from ampdoctor.record.twin.operations import Operation

_SAMPLE = 64

_NUMPY_KNOWS = frozenset({torch.float16, torch.float32, torch.float64})


class Cast(NamedTuple):
    """One tensor that is cast; `target` is None where the result is a new one."""

    source: torch.Tensor
    target: torch.Tensor | None


def casts_of(operation: Operation) -> list[Cast]:
    """Return those casts in an operation of nature CAST that could lose something."""
    first, kwargs = operation.args[0], operation.kwargs
    if operation.traits.writes:
        sources = operation.args[1] if len(operation.args) > 1 else kwargs["src"]
        several = isinstance(first, (list, tuple))
        pairs = zip(first, sources, strict=True) if several else [(first, sources)]
        return [
            Cast(source.expand_as(target), target)
            for target, source in pairs
            if _looked_at(source, target.dtype, target.device) and plain(target)
        ]
    if not isinstance(kwargs.get("dtype"), torch.dtype):
        return []
    device = kwargs.get("device") or first.device
    return [Cast(first, None)] if _looked_at(first, kwargs["dtype"], device) else []


def with_integers_lost(vector: Measured, run: torch.Tensor, source: torch.Tensor) -> Measured:
    """Return the vector of a cast with the number of whole numbers that it has changed.

    Floats are taken for whole numbers where every element is one: single ones are so by chance. What became infinite
    has overflowed and is not counted.
    """
    lost: int | torch.Tensor = 0
    every: bool | torch.Tensor = True
    for after, before in pieces(run, source):
        number, whole = _changed(after, before)
        if whole is False:
            return vector
        lost, every = lost + number, every & whole
    if isinstance(vector, list):
        vector[Measure.INTEGERS_LOST] = float(lost)
    else:
        vector[Measure.INTEGERS_LOST] = lost * every
    return vector


def _changed(after: torch.Tensor, before: torch.Tensor) -> tuple[int | torch.Tensor, bool | torch.Tensor]:
    """Return how many elements of a piece have changed, and whether all of it are whole numbers."""
    whole: bool | torch.Tensor = True
    if before.is_floating_point():
        if after.device.type == "cpu" and not _may_be_whole(before):
            return 0, False
        whole = _whole(before)
    now = after.float()
    same = now == before if before.is_floating_point() else now.long() == before
    return (~same & torch.isfinite(now)).sum(), whole


def _may_be_whole(values: torch.Tensor) -> bool:
    """Whether the first few are whole numbers."""
    sample = values.view(-1)[:_SAMPLE] if values.is_contiguous() else values[:1]
    if sample.dtype not in _NUMPY_KNOWS:
        sample = sample.float()
    numbers = sample.numpy()
    return bool((np.trunc(numbers) == numbers).all())


def _whole(values: torch.Tensor) -> bool | torch.Tensor:
    whole = (values.trunc() == values).all()
    return bool(whole) if values.device.type == "cpu" else whole


def _looked_at(source: torch.Tensor, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a cast to `dtype` could lose something, and both ends of it are on one device."""
    same = torch.device(device).type == source.device.type
    return same and can_lose(source.dtype, dtype) and plain(source) and not source.is_complex()
