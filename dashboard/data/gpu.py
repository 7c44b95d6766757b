"""What the driver said of the GPUs over the run, as lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.opened import OpenedRun

MOST_GPUS = 8
"""GPUs that are drawn, those that torch counts first before others."""


@dataclass(frozen=True)
class Telemetry:
    """What was said of one GPU.

    Attributes:
        name: torch's name of it, and that of the product.
        seconds: when, from the first look at any.
        columns: one of the table's numbers at each look; NaN where it was not said.
        throttled: the reasons why its clock was not higher, with the seconds at which each held.
    """

    name: str
    seconds: NDArray[np.float64]
    columns: dict[str, NDArray[np.float64]]
    throttled: dict[str, NDArray[np.float64]]


NUMBERS = (
    "utilization", "memory_utilization", "memory_used_bytes", "memory_total_bytes", "power_w", "power_limit_w",
    "temperature_c", "sm_clock_mhz", "max_sm_clock_mhz",
)  # fmt: skip


def telemetry(opened: OpenedRun) -> list[Telemetry]:
    """Return what was said of each GPU; empty where none was looked at."""
    table = opened.table("gpu")
    if not table.num_rows:
        return []
    keys = pc.binary_join_element_wise(
        pc.fill_null(pc.cast(table["device"], pa.string()), ""), pc.fill_null(table["uuid"], ""), "\x1f"
    )
    start = float(pc.min(table["time"]).as_py())
    different = sorted(keys.unique().to_pylist(), key=_order)
    return [_one(table.filter(pc.equal(keys, key)), start) for key in different[:MOST_GPUS]]


def _order(key: str) -> tuple[bool, int, str]:
    device = key.partition("\x1f")[0]
    return not device, int(device or 0), key


def _one(table: pa.Table, start: float) -> Telemetry:
    seconds = table["time"].to_numpy() - start
    device, product = table["device"][0].as_py(), table["name"][0].as_py()
    title = " ".join(part for part in (f"cuda:{device}" if device is not None else "GPU", product or "") if part)
    columns = {name: pc.cast(table[name], pa.float64(), safe=False).to_numpy(zero_copy_only=False) for name in NUMBERS}
    return Telemetry(title, seconds, columns, _throttled(table["throttle"], seconds))


def _throttled(column: pa.ChunkedArray, seconds: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    lists = column.combine_chunks()
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    rows, reasons = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)
    return {
        reason: seconds[rows[pc.equal(reasons, reason).to_numpy(zero_copy_only=False)]]
        for reason in reasons.unique().to_pylist()
        if reason is not None
    }
