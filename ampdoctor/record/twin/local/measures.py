"""An operation's result beside the same result in FP32: one short vector of numbers, in few passes over memory.

On the CPU there is no device to wait for: intermediate results decide what is looked at, and NumPy compares, which it
does several times faster than torch. On an accelerator nothing is looked at, and the vector stays on the device.
Tensors are taken piece by piece, so that temporaries stay small.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import torch

from ampdoctor.record.twin.local import bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


class Measure(IntEnum):
    """Places in the vector. All are sums over elements, except ABSMAX."""

    NONZERO = 0
    FLUSHED = 1
    FLUSHED_SQUARES = 2
    SQUARES = 3
    """Of the finite elements in FP32."""
    OVERFLOWED = 4
    BORN = 5
    BORN_FP32 = 6
    ERROR_SQUARES = 7
    """Of the difference, where both are finite."""
    COMPARED_SQUARES = 8
    """Of the FP32 elements that the error was taken of."""
    ABSMAX = 9
    ABSORBED = 10
    INTEGERS_LOST = 11
    CANCELLED = 12


MEASURES = len(Measure)

Measured = list[float] | torch.Tensor
"""The vector: of floats where they are known at once, else on the device."""

_CPU_PIECE = 1 << 18
_DEVICE_PIECE = 1 << 21
"""Elements at a time: a megabyte for each temporary on the CPU, and some 32 MiB of temporaries on a device."""

_SAFE = (1e-10, 1e15)
"""Largest magnitudes between which squares are summed in FP32 without losing any that counts."""


def add_up(vectors: Sequence[Measured]) -> Measured | None:
    """Return the vector of all pieces together; None of none."""
    return reduce(_both, vectors) if vectors else None


def compare(run: torch.Tensor, reference: torch.Tensor) -> Measured | None:
    """Return the vector of a result and what it is in FP32; `reference` may be of any dtype, and is read as FP32."""
    if run._is_zerotensor() or reference._is_zerotensor():
        return None  # zeros without memory: torch knows of some derivatives that they vanish
    measure = _on_cpu if run.device.type == "cpu" else _on_device
    return add_up([measure(r.reshape(-1), _fp32(f)) for r, f in pieces(run, reference)])


def pieces(*tensors: torch.Tensor) -> Iterable[Sequence[torch.Tensor]]:
    """Return tensors of one shape piece by piece, in the order in which the first lies in memory."""
    first = tensors[0]
    tensors = tuple(map(_bare, tensors))
    if not first.is_contiguous():
        order = sorted(range(first.ndim), key=first.stride, reverse=True)
        tensors = tuple(t.permute(order) for t in tensors)
    most = _CPU_PIECE if first.device.type == "cpu" else _DEVICE_PIECE
    if first.numel() > most:
        return _split(tensors, most)
    return [tensors] if first.numel() else []


def _split(tensors: Sequence[torch.Tensor], most: int) -> Iterator[Sequence[torch.Tensor]]:
    if all(t.is_contiguous() for t in tensors):
        tensors = [t.view(-1) for t in tensors]
    first = tensors[0]
    if first.numel() <= most:
        yield tensors
        return
    rows = most * first.shape[0] // first.numel()
    if rows:
        for start in range(0, first.shape[0], rows):
            yield [t[start : start + rows] for t in tensors]
    else:
        for row in range(first.shape[0]):
            yield from _split([t[row] for t in tensors], most)


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values alone: NumPy refuses what autograd knows, and a minus that is still to be applied."""
    if tensor.requires_grad or tensor.is_neg():
        return tensor.detach().resolve_neg()
    return tensor


def _fp32(piece: torch.Tensor) -> torch.Tensor:
    piece = piece.reshape(-1)
    return piece if piece.dtype is torch.float32 else piece.to(torch.float32)


def _both(a: Measured, b: Measured) -> Measured:
    if isinstance(a, list) and isinstance(b, list):
        absmax = max(a[Measure.ABSMAX], b[Measure.ABSMAX])
        total = [x + y for x, y in zip(a, b, strict=True)]
        total[Measure.ABSMAX] = absmax
        return total
    one, other = _as_tensor(a), _as_tensor(b)
    both = one + other
    both[Measure.ABSMAX] = torch.maximum(one[Measure.ABSMAX], other[Measure.ABSMAX])
    return both


def _as_tensor(vector: Measured) -> torch.Tensor:
    return torch.tensor(vector, dtype=torch.float64) if isinstance(vector, list) else vector


def _zeros_in(run: torch.Tensor) -> NDArray[np.bool_] | None:
    """Return where a result is zero; None where it is nowhere."""
    signed = bits.integers(run if run.element_size() > 1 else run.float())
    return np.equal(bits.doubled(signed), 0) if bits.any_zero(signed) else None


def _on_cpu(run: torch.Tensor, reference: torch.Tensor) -> list[float]:
    signed = bits.integers(reference)
    absmax = bits.largest(signed)
    if not math.isfinite(absmax):
        return [float(number) for number in _on_device(run, reference).tolist()]
    flushed, flushed_squares = 0, 0.0
    zeros = _zeros_in(run)
    if zeros is not None:
        zeros &= np.not_equal(bits.doubled(signed), 0)
        flushed = int(np.count_nonzero(zeros))
        if flushed:
            lost = reference.numpy()[zeros]
            flushed_squares = float(np.square(lost, dtype=np.float64).sum())
    error = run - reference if run.dtype is torch.float32 else run.float().sub_(reference)
    if not absmax or _SAFE[0] < absmax < _SAFE[1]:
        errors, squares = torch.dot(error, error).item(), torch.dot(reference, reference).item()
    else:
        factor = 2.0 ** -max(-126, min(126, math.frexp(absmax)[1]))
        error, scaled = error * factor, reference * factor
        errors = torch.dot(error, error).item() / factor**2
        squares = torch.dot(scaled, scaled).item() / factor**2
    if not math.isfinite(errors):
        return [float(number) for number in _on_device(run, reference).tolist()]
    return [
        float(bits.nonzero(signed)), float(flushed), flushed_squares, squares, 0.0, 0.0, 0.0, errors, squares, absmax,
        0.0, 0.0, 0.0,
    ]  # fmt: skip


def _on_device(run: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The same without looking at anything, and for elements that are not finite."""
    run = run.float()
    run_finite, finite = torch.isfinite(run), torch.isfinite(reference)
    clean = torch.where(finite, reference, 0.0)
    compared = torch.where(run_finite, clean, 0.0)
    lost = torch.where(run == 0, clean, 0.0)
    zero = torch.zeros((), dtype=torch.float64, device=run.device)
    born = ~run_finite
    return torch.stack(
        [
            torch.count_nonzero(reference).double(),
            torch.count_nonzero(lost).double(),
            _squares(lost),
            _squares(clean),
            (born & finite).sum().double(),
            born.sum().double(),
            (born & ~finite).sum().double(),
            _squares(torch.where(run_finite & finite, run - reference, 0.0)),
            _squares(compared),
            clean.abs().amax().double(),
            zero,
            zero,
            zero,
        ]
    )


def _squares(values: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()
