"""Whether anything of a run was computed in half precision, as far as was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ampdoctor.analysis.calls.autocast_blocks import autocast_blocks
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.opinions import op_rows
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


@once_per_run
def half_dtypes(run: Run) -> frozenset[str]:
    """Return the half dtypes that tensors were recorded in, gradients were cast to, or operations worked in."""
    table = run.table("tensors")
    names = {*table["dtype"].unique().to_pylist(), *table["cast_to"].unique().to_pylist()}
    for row in op_rows(run):
        names |= {*row.dtype_in.split(","), *row.dtype_out.split(",")}
    return HALF_DTYPES & names


@once_per_run
def any_autocast(run: Run) -> bool:
    """Whether autocast was in force around a module."""
    table = run.table("tensors")
    return bool(pc.any(pc.is_valid(table["autocast"])).as_py())


@once_per_run
def may_use_fp16(run: Run) -> bool:
    """Whether FP16 was recorded anywhere, or may have been used where nothing was recorded."""
    if "float16" in half_dtypes(run):
        return True
    entered = any(b.in_force and b.enter.dtype == "float16" for b in autocast_blocks(run))
    hooks = bool(calls_named(run, "comm_hook"))
    return entered or hooks
