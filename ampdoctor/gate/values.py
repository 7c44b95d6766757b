"""Metrics as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import bytes_text, number, percent, scale_text
from ampdoctor.gate.metrics import Unit

if TYPE_CHECKING:
    from ampdoctor.gate.metrics import Metric


def value_text(metric: Metric, value: float) -> str:
    """Return a value of `metric` with its unit: 1.2 %, 34 MiB, 2^16."""
    if metric.unit is Unit.LOG2:
        return scale_text(2.0**value) if -126.0 <= value <= 127.0 else f"2^{value:g}"
    if metric.unit is Unit.SHARE:
        return percent(value)
    if metric.unit is Unit.BYTES:
        return bytes_text(value)
    return f"{value:.1f} ms" if metric.unit is Unit.MS else number(value)
