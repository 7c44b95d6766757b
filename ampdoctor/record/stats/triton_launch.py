"""Launching the programs of `triton_program`: on which addresses, how many of them, with which settings."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.stats.layout import EXTRA
from ampdoctor.record.stats.torch_ops import flat

if TYPE_CHECKING:
    from collections.abc import Sequence


_KINDS = {
    torch.float32: (0, torch.int32),
    torch.float16: (1, torch.int16),
    torch.bfloat16: (2, torch.int16),
    torch.float8_e4m3fn: (3, torch.uint8),
    torch.float8_e5m2: (4, torch.uint8),
}
"""By what number the programs know a dtype, and the integers that they read instead."""

_ALIGNMENT = 16
"""Bytes that a thread loads at once; Triton compiles a slower variant for addresses that are no multiple of it."""

_PROGRAMS_PER_SMALL_TENSOR = 64
"""At most, of a group."""


@cache
def program() -> Any:
    """The module with the programs, None where there is no Triton."""
    try:
        from ampdoctor.record.stats import triton_program
    except ImportError:
        return None
    return triton_program


def current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Have `device` be the current one: Triton launches there, on its current stream."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def as_it_lies(values: torch.Tensor) -> torch.Tensor | None:
    """The elements in memory order, without a copy where they lie without gaps; None where there is no memory."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    values = values.resolve_neg()
    if not values.is_contiguous():
        values = flat(values).contiguous()
    return values if values.data_ptr() or not values.numel() else None


def aligned(elements: torch.Tensor) -> torch.Tensor:
    """The elements, copied where a group's programs could not load them from where they are."""
    return elements.clone() if elements.data_ptr() % _ALIGNMENT else elements


def launch_one(elements: torch.Tensor, out: torch.Tensor, most: int) -> None:
    """Add the statistics of contiguous elements to `out`, by `most` programs at most."""
    code, (kind, integers), numel = program(), _KINDS[elements.dtype], elements.numel()
    programs = min(most, -(-numel // code.BLOCK))
    code.measure_one[programs,](elements.view(integers), numel, out, kind=kind, block=code.BLOCK, **_options(code))


def launch_many(elements: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Add the statistics of contiguous elements of one dtype, at aligned addresses, to the rows of `out`."""
    code, dtype, on_gpu = program(), elements[0].dtype, out.device.type == "cuda"
    rows = [(e.data_ptr(), e.numel()) for e in elements]
    # Torch keeps pinned memory until the copy from it is over.
    host = torch.tensor(rows, dtype=torch.int64, device="cpu", pin_memory=on_gpu)
    table = host.to(out.device, non_blocking=True)
    programs = min(_PROGRAMS_PER_SMALL_TENSOR, max(1, *(-(-numel // code.BLOCK) for _, numel in rows)))
    code.measure_many[len(rows), programs](
        table, out, kind=_KINDS[dtype][0], bits=8 * dtype.itemsize, row_size=EXTRA, block=code.BLOCK, **_options(code)
    )


def _options(code: Any) -> dict[str, Any]:
    # Fusion is said, or Triton 3.9 warns that its default will change; it makes one operation of a square and a sum.
    options = {"num_warps": code.WARPS, "enable_fp_fusion": True}
    return options if torch.version.hip else options | {"maxnreg": code.REGISTERS}


def compile_for(dtype: torch.dtype, device: torch.device) -> None:
    """Launch what there is for a dtype on next to nothing: at an aligned address, at another one, and as a group."""
    values = torch.zeros(2 * _ALIGNMENT, dtype=torch.float32, device=device).to(dtype)
    out = torch.zeros(EXTRA, dtype=torch.float64, device=device)
    launch_one(values, out, 1)
    launch_one(values[1:], out, 1)
    launch_many([values], out)
