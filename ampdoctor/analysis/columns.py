"""Questions to the columns of the `tensors` table, answered without building an object for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def nonfinite_steps(run: Run, *roles: str) -> list[int]:
    """Return the steps on which a tensor in one of `roles` held a NaN or an infinity, in order."""
    table = run.table("tensors")
    bad = pc.add(pc.add(table["nan"], table["posinf"]), table["neginf"])
    wanted = pc.and_(pc.greater(bad, 0), pc.is_in(table["role"], pa.array(roles)))
    return sorted(set(table.filter(wanted)["step"].to_pylist()))


def recorded_steps(run: Run, role: str) -> set[int]:
    """Return the steps on which a tensor in `role` was recorded."""
    table = run.table("tensors")
    return set(table.filter(pc.equal(table["role"], role))["step"].to_pylist())


def recorded_dtypes(run: Run, *roles: str) -> set[str]:
    """Return the dtypes of the tensors recorded in one of `roles`."""
    table = run.table("tensors")
    wanted = table.filter(pc.is_in(table["role"], pa.array(roles)))
    return set(wanted["dtype"].unique().to_pylist())


def trains_in_fp16(run: Run) -> bool:
    """Whether an activation was recorded in FP16 while gradients were on."""
    table = run.table("tensors")
    half = pc.and_(pc.equal(table["role"], "activation"), pc.equal(table["dtype"], "float16"))
    return bool(pc.any(pc.and_(half, table["grad_enabled"])).as_py())


def without_fp16(run: Run) -> bool:
    """Whether activations or gradients were recorded, and none in FP16: its range is not what is lacking."""
    dtypes = recorded_dtypes(run, "grad_output", "activation")
    return bool(dtypes) and "float16" not in dtypes
