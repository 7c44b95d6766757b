"""The numbers that a gate looks at: one entry is one metric, and everything else follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from ampdoctor.errors import AmpDoctorError

NOTABLE = 0.25
"""Relative change that people are told of, of what no baseline fails: times, which differ from machine to machine."""


class Worse(str, Enum):
    """Which way a metric goes when things get worse."""

    MORE = "more"
    LESS = "less"


class Unit(str, Enum):
    """What a metric is counted in."""

    SHARE = "share"
    BYTES = "bytes"
    MS = "ms"
    LOG2 = "log2"
    PURE = ""


@dataclass(frozen=True)
class Metric:
    """One number that may not get worse.

    Attributes:
        name: its name on the command line and in baselines.
        title: what tables call it.
        doc: what it is, in one sentence.
        worse: which way is worse.
        unit: what it is counted in.
        absolute: change that is let pass whatever the value; None where a baseline alone never fails it: what it
            measures differs from machine to machine.
        relative: likewise, as a share of the baseline's value.
        by_site: it is also told for each site.
        of_modules: its sites are places in the model; of memory they are components.
        why: where the numbers of `absolute` and `relative` come from, in one sentence.
    """

    name: str
    title: str
    doc: str
    worse: Worse = Worse.MORE
    unit: Unit = Unit.SHARE
    absolute: float | None = 0.0
    relative: float = 0.0
    by_site: bool = False
    of_modules: bool = True
    why: str = ""

    def is_worse(self, value: float, limit: float) -> bool:
        """Whether `value` lies beyond `limit`; a value that is NaN does."""
        return not (value <= limit if self.worse is Worse.MORE else value >= limit)

    def allowed(self, low: float, high: float) -> float | None:
        """Return the value from which on a change is a regression; None where none is.

        Args:
            low: the least that was seen in the baseline's runs.
            high: the most. What lies between is noise, and as much beyond it is taken for noise too.
        """
        if self.absolute is None:
            return None
        worst = high if self.worse is Worse.MORE else low
        margin = self._margin(worst) + (high - low)
        return worst + margin if self.worse is Worse.MORE else worst - margin

    def worsening(self, before: float, now: float) -> float:
        """Return how much worse `now` is than `before`, in tolerances; negative where it is better."""
        change = now - before if self.worse is Worse.MORE else before - now
        margin = self._margin(before)
        return change / margin if margin else math.copysign(math.inf, change) if change else 0.0

    def _margin(self, value: float) -> float:
        if self.absolute is None:
            return NOTABLE * abs(value)
        return max(self.absolute, self.relative * abs(value))


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "nonfinite_loss",
            "nonfinite losses",
            "Share of the steps whose loss is NaN or infinite.",
            absolute=0.0,
            why="One such loss more is a fault: in 20 good seeds their share never changed.",
        ),
        Metric(
            "nonfinite",
            "nonfinite tensors",
            "Tensors with NaN or infinite elements on steps that were applied, as a share of all recorded on them.",
            absolute=0.0,
            why="A step with them should have been skipped; in 20 good seeds their share never changed.",
        ),
        Metric(
            "skipped",
            "skipped steps",
            "Share of the steps that the scaler skipped.",
            absolute=0.05,
            why="A choice: two steps of a run of 40, as a scaler skips while it looks for its scale.",
        ),
        Metric(
            "min_scale",
            "smallest loss scale",
            "log2 of the smallest loss scale that a step was taken with.",
            worse=Worse.LESS,
            unit=Unit.LOG2,
            absolute=2.0,
            why="A choice: two backoffs of a scaler; it was the same in all of 20 good seeds.",
        ),
        Metric(
            "flushed",
            "flushed gradient",
            "Share of the weight gradients' elements that are zero and not zero in FP32: measured, or else estimated.",
            absolute=0.02,
            relative=0.25,
            by_site=True,
            why="A choice above the noise: it was 0 in all of 20 good seeds.",
        ),
        Metric(
            "lost_updates",
            "lost updates",
            "Share of the elements of half weights that the optimizer meant to change and that kept their value.",
            absolute=0.05,
            relative=0.1,
            why="A choice: its noise was not measured, as the runs of the table below keep FP32 weights.",
        ),
        Metric(
            "cosine",
            "gradient cosine to FP32",
            "Smallest cosine between the run's gradient and that of the FP32 twin: measured.",
            worse=Worse.LESS,
            unit=Unit.PURE,
            absolute=0.01,
            why="20 good seeds differ by 1e-8, and the mildest harmful change of those below comes to 0.97.",
        ),
        Metric(
            "subnormal",
            "subnormal gradient",
            "Share of the elements of half gradients that are subnormal, over all examined steps.",
            absolute=0.05,
            relative=0.25,
            by_site=True,
            why="Above the noise: at the site that differs most, 20 good seeds lie 3.3 points apart.",
        ),
        Metric(
            "memory",
            "memory at the peak",
            "Bytes that lived at the peak of the step whose ledger was kept, and by component.",
            unit=Unit.BYTES,
            absolute=1 << 20,
            relative=0.05,
            by_site=True,
            of_modules=False,
            why="It was the same in all of 20 good seeds; the room, for another version of torch, is a choice.",
        ),
        Metric(
            "step_ms",
            "step time",
            "Median time of a step that was not examined. A baseline alone never fails it: machines differ.",
            unit=Unit.MS,
            absolute=None,
            why="20 good seeds took 18 to 153 ms on a machine that others were using.",
        ),
    )
}
"""All metrics by name, worst and causes first: what a report names first."""


def find_metric(name: str) -> Metric:
    """Return the metric called `name`.

    Raises:
        AmpDoctorError: there is none; the hint lists those there are.
    """
    try:
        return METRICS[name]
    except KeyError:
        raise AmpDoctorError(f"unknown metric {name!r}", hint="known metrics: " + ", ".join(METRICS)) from None
