"""The numbers that the heatmap of layers can show: what each is made of, and which end of it is bad."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ampdoctor.finding import Grade


class Made(Enum):
    """What a metric is made of."""

    SHARE = "a column of counts over all elements"
    ESTIMATED = "estimated flushed elements over those nonzero before"
    MEASURED = "flushed elements over those nonzero in the FP32 twin"
    COSINE = "the cosine to the FP32 twin"
    LARGEST = "the largest magnitude, against an edge of the format"
    RMS = "the root mean square"


@dataclass(frozen=True)
class Metric:
    """One number per site and step.

    Attributes:
        key: what the address calls it.
        made: what it is made of.
        grade: how it is known.
        column: the column of counts, of a share.
        low_is_bad: the small end is the bad one.
    """

    key: str
    made: Made
    grade: Grade
    column: str = ""
    low_is_bad: bool = False

    @property
    def is_share(self) -> bool:
        """It lies between 0 and 1, and is said in percent."""
        return self.made in {Made.SHARE, Made.ESTIMATED, Made.MEASURED}


METRICS = (
    Metric("flushed", Made.ESTIMATED, Grade.ESTIMATED),
    Metric("flushed_measured", Made.MEASURED, Grade.MEASURED),
    Metric("zeros", Made.SHARE, Grade.OBSERVED, "zeros"),
    Metric("subnormal", Made.SHARE, Grade.OBSERVED, "subnormal"),
    Metric("headroom", Made.LARGEST, Grade.OBSERVED, low_is_bad=True),
    Metric("above_flush", Made.LARGEST, Grade.OBSERVED, low_is_bad=True),
    Metric("rms", Made.RMS, Grade.OBSERVED),
    Metric("nonfinite", Made.SHARE, Grade.OBSERVED, "nonfinite"),
    Metric("cosine", Made.COSINE, Grade.MEASURED, low_is_bad=True),
)


def metric_of(key: str) -> Metric:
    """Return the metric called `key`; the first where there is none."""
    return next((metric for metric in METRICS if metric.key == key), METRICS[0])
