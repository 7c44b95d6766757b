"""Statistics by plain torch operations: the reference, always available.

On the CPU there is no device to wait for, so the code may look at intermediate results and skip what is not needed.
On an accelerator nothing is looked at: every result stays on the device.
"""

from __future__ import annotations

from functools import cache

import torch

from ampdoctor.record.quiet import autocast_off
from ampdoctor.record.stats.layout import EXTRA, HEADER, HIGHEST, LOWEST

_BINS = EXTRA - HEADER
_CHUNK = 1 << 22
"""Elements handled at once: keeps the temporaries (some 20 bytes an element) below about 100 MB."""

_FP32_BIAS = 127
_FP32_SPECIAL = 255
"""Exponent field of inf and NaN."""


_PACKED = {getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name)}
"""dtypes that hold several values an element and that torch can't convert."""


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def measurable(tensor: torch.Tensor) -> bool:
    """Whether statistics can be taken: a plain, dense, real or complex floating-point tensor with storage."""
    return type(tensor) in _PLAIN and _numbers(tensor.dtype) and tensor.layout is torch.strided and not tensor.is_meta


@cache
def _numbers(dtype: torch.dtype) -> bool:
    return (dtype.is_floating_point or dtype.is_complex) and dtype not in _PACKED


def statistics_vector(tensor: torch.Tensor) -> torch.Tensor:
    """Return the statistics of `tensor` as a float64 vector of EXTRA entries on its device (see `layout`)."""
    with torch.no_grad(), autocast_off(tensor.device.type):
        return _measured(tensor.detach())


def _measured(values: torch.Tensor) -> torch.Tensor:
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    elements = flat(values.resolve_neg())
    measure = _on_cpu if elements.device.type == "cpu" else _on_device
    if elements.numel() == 0:
        return torch.zeros(EXTRA, dtype=torch.float64, device=elements.device)
    vector = measure(elements[:_CHUNK])
    for start in range(_CHUNK, elements.numel(), _CHUNK):
        part = measure(elements[start : start + _CHUNK])
        absmax = torch.maximum(vector[4], part[4])
        vector += part
        vector[4] = absmax
    return vector


def flat(values: torch.Tensor) -> torch.Tensor:
    """Return the elements in the order in which they lie in memory: a permuted tensor (channels last) needs no copy."""
    by_stride = sorted(range(values.ndim), key=values.stride, reverse=True)
    return values.permute(by_stride).reshape(-1)


def _on_cpu(flat: torch.Tensor) -> torch.Tensor:
    """One pass over the exponent fields of FP32, which holds every narrower value exactly and as a normal number."""
    if flat.dtype is torch.float64:
        return _on_device(flat)
    x = flat.float()
    fields = (x.view(torch.int32) >> 23) & _FP32_SPECIAL
    counts = torch.bincount(fields, minlength=_FP32_SPECIAL + 1)
    vector = torch.zeros(EXTRA, dtype=torch.float64, device=flat.device)
    first = HEADER - LOWEST - _FP32_BIAS
    vector[first + 1 : first + _FP32_SPECIAL] = counts[1:_FP32_SPECIAL].double()
    if counts[_FP32_SPECIAL]:
        _count_nonfinite(x, vector)
        x = torch.where(torch.isfinite(x), x, 0.0)
    if counts[0]:
        zeros = int((x == 0).sum()) - int(counts[_FP32_SPECIAL])
        vector[0] = zeros
        if zeros < counts[0]:
            _count_fp32_subnormals(x, vector)
    vector[4] = x.abs().amax().double()
    vector[5] = torch.linalg.vector_norm(x, dtype=torch.float64).square()
    return vector


def _count_nonfinite(x: torch.Tensor, vector: torch.Tensor) -> None:
    vector[1] = torch.isnan(x).sum()
    vector[2] = torch.isposinf(x).sum()
    vector[3] = torch.isneginf(x).sum()


def _count_fp32_subnormals(x: torch.Tensor, vector: torch.Tensor) -> None:
    small = x[(x != 0) & (x.abs() < torch.finfo(torch.float32).tiny)]
    bins = torch.frexp(small.double())[1].long() - 1 - LOWEST
    vector[HEADER:EXTRA] += torch.bincount(bins, minlength=_BINS).double()


def _on_device(flat: torch.Tensor) -> torch.Tensor:
    """The same without ever looking at a result: no branch depends on the values, so nothing waits for the device."""
    x = flat if flat.dtype is torch.float64 else flat.float()
    finite = torch.isfinite(x)
    clean = torch.where(finite, x, 0.0)
    exponents = torch.frexp(clean)[1].long() - 1
    bins = exponents.clamp(LOWEST, HIGHEST) - LOWEST
    # Zeros and nonfinite elements go to one bin more, which is then dropped.
    bins = torch.where(clean != 0, bins, _BINS)
    counts = torch.zeros(_BINS + 1, dtype=torch.int64, device=x.device)
    counts.scatter_add_(0, bins, torch.ones((), dtype=torch.int64, device=x.device).expand_as(bins))
    header = torch.stack(
        [
            (x == 0).sum().double(),
            torch.isnan(x).sum().double(),
            torch.isposinf(x).sum().double(),
            torch.isneginf(x).sum().double(),
            clean.abs().amax().double(),
            torch.linalg.vector_norm(clean, dtype=torch.float64).square(),
        ]
    )
    return torch.cat([header, counts[:_BINS].double()])
