"""What BF16 would cost a run: 8 bits of significand are few, and not every device has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ampdoctor.analysis.cures import NO_NATIVE_BF16, half_weights

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

NATIVE_BF16 = re.compile(
    r"\b(A\d{1,3}|H[12]00|GH200|B[12]00|GB[12]00|L4\d?|RTX (?:[345]0\d\d|A\d000))\b"
)
"""GPUs of compute capability 8.0 and above, by their names (NVIDIA, CUDA GPUs)."""

INTEGERS = 256
"""BF16 holds whole numbers up to this one after another."""


def bf16_costs(run: Run) -> list[str]:
    """Return what there is to know before `run` is moved to BF16, a sentence each."""
    told = []
    if half_weights(run):
        told.append("BF16 weights would lose small updates: keep them in FP32.")
    integers = sum(row.integers_lost or 0 for row in run.ops)
    if integers:
        told.append(
            f"Half already rounds {integers} whole numbers, and BF16 rounds those above {INTEGERS}: keep "
            "positions and counts in FP32."
        )
    absorbed = sum(row.absorbed or 0 for row in run.ops)
    if absorbed:
        told.append(
            f"Long sums suffer: {absorbed} terms are absorbed already, and BF16 absorbs more."
        )
    return told + _device(run.info.device)


def _device(device: str) -> list[str]:
    if not device.startswith("cuda") or NO_NATIVE_BF16.search(device) or NATIVE_BF16.search(device):
        return []
    return [
        "Whether this device computes in BF16 natively (compute capability 8.0) is not recorded."
    ]
