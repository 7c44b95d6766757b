"""What the GPU runs: one pass over a tensor's memory by programs that share its tiles (see `triton_kernel`).

Importing this imports Triton. Each number is widened to FP32, which is exact, and then to FP64, where FP32's subnormals
are normal numbers too: its exponent field is the bin, its square can't overflow, and no number needs a path of its own.
Only a tensor with NaN or infinities is read twice: once they are found, they are counted and left out of the rest.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ampdoctor.record.stats.layout import EXTRA, HEADER, LOWEST

if TYPE_CHECKING:
    from collections.abc import Callable

# Loaded by name: it has no type information, and mypy says the same whether it is installed or not.
triton: Any = import_module("triton")
tl: Any = import_module("triton.language")
if TYPE_CHECKING:
    constexpr = Any
    int64 = Any
    tensor = Any
else:  # Triton goes by these names in annotations
    constexpr, int64, tensor = tl.constexpr, tl.int64, tl.tensor
jit: Callable[[Callable[..., Any]], Any] = triton.jit
kernel: Callable[[Callable[..., Any]], Any] = triton.jit(do_not_specialize=["numel", "out"])
"""Compiled once whatever the size and place: a new variant would be compiled in the middle of a step."""

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on", "yes", "y"}
"""Triton runs its programs in Python, on the CPU."""

FP32, FP16, BF16, E4M3, E5M2 = (tl.constexpr(kind) for kind in range(5))

BLOCK = 2048
"""Elements of a tile."""

WARPS = 8
"""Of 32 threads, 8 elements each."""

REGISTERS = 64
"""For a thread: four programs share a core, and some have loads under way while others wait at their barriers."""

_STAGES = tl.constexpr(4)
"""Tiles in the making: three are on their way while one is counted (by cp.async, from Ampere on)."""

_BINS = tl.constexpr(512)
"""Counters of a program, a power of two. As a tensor's elements share a few binades, its counters lie in shared memory
next to each other, and those of one binade are counted in one go (ATOMS.POPC.INC)."""

_LAST = tl.constexpr(EXTRA - HEADER)
"""Counter of the largest binade; the first one, 0, counts zeros."""

_SPECIAL = tl.constexpr(EXTRA - HEADER + 1)
"""Counter of NaN and infinities, and _BINS - 1 that of the lanes beyond the end: nobody reads either."""

_FIELD_BEFORE = tl.constexpr(1023 + LOWEST - 1)
"""FP64's exponent field of the binade below the first bin."""

_FIRST_BIN = tl.constexpr(HEADER - 1)
"""Where in the vector counter 0 would be, if zeros did not have a place of their own."""

_INFINITY = tl.constexpr(0x7F800000)
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)


@jit
def _as_fp16(raw: tensor, kind: constexpr) -> tensor:
    """The bits of the same numbers in FP16; those of E4M3 are 256 times smaller there, for its bias is less by 8."""
    if kind == E5M2:
        half = raw.to(tl.int16) << 8
    elif kind == E4M3:
        half = ((raw.to(tl.int16) & 0x80) << 8) | ((raw.to(tl.int16) & 0x7F) << 7)
    else:
        half = raw
    return half


@jit
def _as_fp32(raw: tensor, kind: constexpr) -> tensor:
    """The bits of the same numbers in FP32."""
    if kind == FP32:
        bits = raw
    elif kind == BF16:
        bits = raw.to(tl.int32) << 16
    else:
        wide = _as_fp16(raw, kind).to(tl.float16, bitcast=True).to(tl.float32)
        if kind == E4M3:
            wide = tl.where((raw & 0x7F) == 0x7F, float("nan"), wide * 256.0)
        bits = wide.to(tl.int32, bitcast=True)
    return bits


@jit
def _tile(data: tensor, start: tensor, left: tensor, kind: constexpr, block: constexpr, cut: constexpr) -> tensor:
    """The tile at `start`; zeros beyond `left` where it is cut off. A mask would keep loads from being vectors."""
    lanes = tl.arange(0, block)
    at = data + start + lanes
    return _as_fp32(tl.load(at, mask=lanes < left, other=0) if cut else tl.load(at), kind)


@jit
def _fp64(magnitude: tensor) -> tensor:
    return magnitude.to(tl.float32, bitcast=True).to(tl.float64)


@jit
def _counters(value: tensor) -> tensor:
    """By which counter each magnitude is counted."""
    field = (value.to(tl.uint64, bitcast=True) >> 52).to(tl.int32)
    return tl.minimum(tl.maximum(field - _FIELD_BEFORE, 0), _SPECIAL)


@jit
def _put_largest(out: tensor, magnitude: tensor) -> None:
    """As integers, whose order is that of floats without a sign."""
    place = (out + 4).to(tl.pointer_type(tl.int64), bitcast=True)
    tl.atomic_max(place, _fp64(magnitude).to(tl.int64, bitcast=True), sem="relaxed")


@jit
def _put_specials(
    data: tensor, numel: tensor, out: tensor, share: tensor, shares: tensor, kind: constexpr, block: constexpr
) -> None:
    """Read a share once more: count what is not finite, and say absmax and squares of the rest."""
    zero = tl.zeros((), dtype=tl.int32)
    nan, infinite, negative = zero, zero, zero
    largest = tl.zeros((block,), dtype=tl.int32)
    squares = tl.zeros((block,), dtype=tl.float64)
    for tile in range(share, tl.cdiv(numel, block), shares):
        bits = _tile(data, tile * block, numel - tile * block, kind, block, True)
        magnitude = bits & _MAGNITUDE
        nan += tl.sum((magnitude > _INFINITY).to(tl.int32), 0)
        infinite += tl.sum((magnitude == _INFINITY).to(tl.int32), 0)
        negative += tl.sum(((magnitude == _INFINITY) & (bits < 0)).to(tl.int32), 0)
        finite = tl.where(magnitude < _INFINITY, magnitude, 0)
        largest = tl.maximum(largest, finite)
        squares += _fp64(finite) * _fp64(finite)
    tl.atomic_add(out + 1, nan.to(tl.float64), sem="relaxed")
    tl.atomic_add(out + 2, (infinite - negative).to(tl.float64), sem="relaxed")
    tl.atomic_add(out + 3, negative.to(tl.float64), sem="relaxed")
    tl.atomic_add(out + 5, tl.sum(squares, 0), sem="relaxed")
    _put_largest(out, tl.max(largest, 0))


@jit
def _put_share(
    data: tensor, numel: tensor, out: tensor, share: tensor, shares: tensor, kind: constexpr, block: constexpr
) -> None:
    """Add every `shares`-th tile, from number `share` on, to the vector `out`."""
    counts = tl.zeros((_BINS,), dtype=tl.int32)
    largest = tl.zeros((block,), dtype=tl.int32)
    squares = tl.zeros((block,), dtype=tl.float64)
    whole = numel // block
    for tile in tl.range(share, whole, shares, num_stages=_STAGES):
        magnitude = _tile(data, tile * block, 0, kind, block, False) & _MAGNITUDE
        value = _fp64(magnitude)
        counts += tl.histogram(_counters(value), _BINS)
        largest = tl.maximum(largest, magnitude)
        squares += value * value
    left = numel - whole * block
    if (left > 0) & (whole % shares == share):
        magnitude = _tile(data, whole * block, left, kind, block, True) & _MAGNITUDE
        value = _fp64(magnitude)
        counts += tl.histogram(tl.where(tl.arange(0, block) < left, _counters(value), _BINS - 1), _BINS)
        largest = tl.maximum(largest, magnitude)
        squares += value * value
    counter = tl.arange(0, _BINS)
    place = tl.where(counter == 0, 0, counter + _FIRST_BIN)
    tl.atomic_add(out + place, counts.to(tl.float64), mask=(counter <= _LAST) & (counts > 0), sem="relaxed")
    top = tl.max(largest, 0)
    if top < _INFINITY:
        tl.atomic_add(out + 5, tl.sum(squares, 0), sem="relaxed")
        _put_largest(out, top)
    else:
        _put_specials(data, numel, out, share, shares, kind, block)


@kernel
def measure_one(data: tensor, numel: int64, out: tensor, kind: constexpr, block: constexpr) -> None:
    """Add the statistics of one tensor to the vector `out`."""
    share = tl.program_id(0).to(tl.int64)
    _put_share(data, numel, out, share, tl.num_programs(0).to(tl.int64), kind, block)


@kernel
def measure_many(
    table: tensor, out: tensor, kind: constexpr, bits: constexpr, row_size: constexpr, block: constexpr
) -> None:
    """Add the statistics of the tensors of a table, an address (of 16 bytes' alignment) and a size each, to the rows
    of `out`."""
    row = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1).to(tl.int64)
    numel = tl.load(table + 2 * row + 1)
    if share * block < numel:
        address = tl.load(table + 2 * row)
        if bits == 32:
            data = address.to(tl.pointer_type(tl.int32))
        elif bits == 16:
            data = address.to(tl.pointer_type(tl.int16))
        else:
            data = address.to(tl.pointer_type(tl.uint8))
        data = tl.multiple_of(data, 16)
        _put_share(data, numel, out + row * row_size, share, tl.num_programs(1).to(tl.int64), kind, block)
