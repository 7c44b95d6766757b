"""One tensor beside its FP32 twin: a vector of numbers, taken on the device without waiting for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.stats import compared

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 1 << 21
"""Elements handled at once: keeps the temporaries (some 60 bytes an element) near 128 MiB."""

_CHUNK_ON_CPU = 1 << 17
"""There they are to stay in the cache."""

_SAFE = 1e-15
"""Largest magnitudes from which on products in FP32 that matter do not underflow."""


class Comparison(NamedTuple):
    """What is known of one tensor beside its FP32 twin; sums of squares and products have both loss scales in them.

    The fields are those of `TwinRow`; `dot` is the sum of the products, `squares_lost` the FP32 twin's sum of squares
    in elements that were too small.
    """

    numel: float
    nonzero: float
    flushed: float
    too_small: float
    subnormal: float
    overflowed: float
    nonfinite: float
    nonfinite_fp32: float
    dot: float
    squares: float
    squares_fp32: float
    squares_lost: float
    absmax: float

    def divided(self, scale: float, scale_fp32: float) -> Comparison:
        """Return it with the loss scales divided out."""
        return self._replace(
            dot=self.dot / (scale * scale_fp32),
            squares=self.squares / scale**2,
            squares_fp32=self.squares_fp32 / scale_fp32**2,
            squares_lost=self.squares_lost / scale_fp32**2,
            absmax=self.absmax / scale,
        )

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between the two; None where either is all zero or not finite."""
        if self.nonfinite or self.nonfinite_fp32 or not self.squares or not self.squares_fp32:
            return None
        cosine = self.dot / (math.sqrt(self.squares) * math.sqrt(self.squares_fp32))
        return max(-1.0, min(1.0, cosine))

    @property
    def norm_ratio(self) -> float | None:
        """Norm over that of the FP32 twin; None where that is zero or either is not finite."""
        if self.nonfinite or self.nonfinite_fp32 or not self.squares_fp32:
            return None
        return math.sqrt(self.squares) / math.sqrt(self.squares_fp32)

    @property
    def energy_lost(self) -> float | None:
        """Share of the FP32 twin's sum of squares in elements too small; None where that is zero."""
        return self.squares_lost / self.squares_fp32 if self.squares_fp32 else None


def comparison_vector(
    values: torch.Tensor, reference: torch.Tensor, smallest_normal: float, ratio: float = 1.0
) -> torch.Tensor:
    """Return the numbers of a `Comparison` as a float64 vector on the device of `values`.

    Args:
        values: the tensor; shape as `reference`.
        reference: its FP32 twin.
        smallest_normal: nonzero values of `values` below it are counted as subnormal.
        ratio: loss scale in `values` over that in `reference`.
    """
    edge = smallest_normal, smallest_normal / ratio
    # In one and the same order, whatever the strides of either.
    ours, theirs = _flat(values), _flat(reference)
    found = compared(ours, theirs, edge)
    if found is not None:
        return found
    on_cpu = ours.device.type == "cpu"
    chunk, measure = (_CHUNK_ON_CPU, _on_cpu) if on_cpu else (_CHUNK, _on_device)
    vector = torch.zeros(len(Comparison._fields), dtype=torch.float64, device=ours.device)
    for start in range(0, ours.numel(), chunk):
        wide = ours[start : start + chunk]
        wide = wide.float() if wide.element_size() < 4 else wide
        part = measure(wide, theirs[start : start + chunk], edge)
        absmax = torch.maximum(vector[-1], part[-1])
        vector += part
        vector[-1] = absmax
    vector[0] = ours.numel()
    return vector


def decode(vector: NDArray[np.float64]) -> Comparison:
    """Read a vector that was fetched from the device."""
    return Comparison(*(float(n) for n in vector))


def together(parts: Iterable[Comparison]) -> Comparison:
    """Return the comparison of all tensors together."""
    columns = list(zip(*parts, strict=True))
    if not columns:
        return Comparison(*[0.0] * len(Comparison._fields))
    sums = [sum(column) for column in columns]
    return Comparison(*sums)._replace(absmax=max(columns[-1]))


def _flat(values: torch.Tensor) -> torch.Tensor:
    """Return the elements in order; a complex number is two of them."""
    values = values.detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    return values.reshape(-1)


Edge = tuple[float, float]
"""The smallest normal number, at the loss scale of the values and at that of the FP32 twin."""


def _on_cpu(ours: torch.Tensor, theirs: torch.Tensor, edge: Edge) -> torch.Tensor:
    """The same in fewer passes: on the CPU one may look at a number and leave out what follows from it."""
    (low, high), (low_fp32, high_fp32) = torch.aminmax(ours), torch.aminmax(theirs)
    absmax, absmax_fp32 = max(-float(low), float(high)), max(-float(low_fp32), float(high_fp32))
    # NaN fails every comparison.
    usual = absmax < 1.0 / _SAFE and (absmax == 0.0 or absmax > _SAFE)
    usual_fp32 = absmax_fp32 < 1.0 / _SAFE and (absmax_fp32 == 0.0 or absmax_fp32 > _SAFE)
    if not (usual and usual_fp32) or theirs.dtype is not torch.float32:
        return _on_device(ours, theirs, edge)
    zeros = ours.numel() - int(torch.count_nonzero(ours))
    flushed, too_small, squares_lost = 0, 0, 0.0
    if zeros:
        gone = theirs[ours == 0]
        tiny = gone[gone.abs() < edge[1]]
        flushed, too_small = int(torch.count_nonzero(gone)), int(torch.count_nonzero(tiny))
        squares_lost = _squares(tiny)
    small = int(torch.count_nonzero(ours.abs() < edge[0])) - zeros
    return torch.tensor(
        [
            0.0, int(torch.count_nonzero(theirs)), flushed, too_small, small, 0.0, 0.0, 0.0,
            float((ours * theirs).sum(dtype=torch.float64)), _squares(ours), _squares(theirs), squares_lost, absmax,
        ],
        dtype=torch.float64,
    )  # fmt: skip


def _squares(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def _on_device(ours: torch.Tensor, theirs: torch.Tensor, edge: Edge) -> torch.Tensor:
    finite, finite_fp32 = torch.isfinite(ours), torch.isfinite(theirs)
    nonzero = (theirs != 0) & finite_fp32
    flushed = nonzero & (ours == 0)
    x = torch.where(finite, ours, 0).double()
    y = torch.where(finite_fp32, theirs, 0).double()
    size = x.abs()
    too_small = flushed & (y.abs() < edge[1])
    counts = [
        nonzero, flushed, too_small, (size < edge[0]) & (size > 0), finite_fp32 & ~finite, ~finite, ~finite_fp32,
    ]  # fmt: skip
    sums = [torch.dot(x, y), torch.dot(x, x), torch.dot(y, y), (y * too_small).square().sum()]
    numbers = [torch.zeros_like(sums[0]), *(c.sum().double() for c in counts), *sums, size.amax()]
    return torch.stack(numbers)
