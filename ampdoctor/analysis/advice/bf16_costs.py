"""What BF16 would cost a run: 8 bits of significand are few, and not every device has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import NO_NATIVE_BF16, half_weights
from ampdoctor.analysis.twins.opinions import op_rows
from ampdoctor.analysis.wording import counted, percent
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

NATIVE_BF16 = re.compile(r"\b(A\d{1,3}|H[12]00|GH200|B[12]00|GB[12]00|L4\d?|RTX (?:[345]0\d\d|A\d000))\b")
"""GPUs of compute capability 8.0 and above, by their names (NVIDIA, CUDA GPUs)."""

INTEGERS = 256
"""BF16 holds whole numbers up to this one after another."""

ABSORBED = 0.01
"""Share of sums in half that absorb a term. BF16's steps are 8 times as coarse, so that it absorbs up to 8 times as
many: from here on that may be one in twelve. Fewer are the small end of what is added up."""


def bf16_costs(run: Run) -> list[str]:
    """Return what there is to know before `run` is moved to BF16, a sentence each."""
    told = []
    if half_weights(run):
        told.append("BF16 weights would lose small updates: keep them in FP32.")
    integers = sum(row.integers_lost or 0 for row in op_rows(run))
    if integers:
        # Those up to 2048, which FP16 holds and BF16 does not, are not counted: without a count nothing is said.
        told.append(
            f"Casts to half already round {counted(integers, 'whole number')}, and BF16 rounds those above {INTEGERS}: "
            "keep positions and counts in FP32."
        )
    absorbed = _absorbed(run)
    if absorbed >= ABSORBED:
        told.append(
            f"Sums suffer: {percent(absorbed)} of the sums in half absorb a term already, and BF16 absorbs more."
        )
    return told + _device(run.info.device)


def _absorbed(run: Run) -> float:
    """Return the share of the elements of sums in half to which a term that is not zero has added nothing."""
    sums = [row for row in op_rows(run) if row.absorbed is not None and HALF_DTYPES & set(row.dtype_out.split(","))]
    elements = sum(row.numel for row in sums)
    return sum(row.absorbed or 0 for row in sums) / elements if elements else 0.0


def _device(device: str) -> list[str]:
    if not device.startswith("cuda") or NO_NATIVE_BF16.search(device) or NATIVE_BF16.search(device):
        return []
    return ["Whether this device computes in BF16 natively (compute capability 8.0) is not recorded."]
