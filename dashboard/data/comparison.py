"""Runs side by side: what each came to, number by number, and what that says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from ampdoctor.finding import Grade
from ampdoctor.formats import HALF_DTYPES
from ampdoctor.gate.metrics import METRICS as GATES
from ampdoctor_dashboard.data.timeline import unscaled_norm
from ampdoctor_dashboard.data.tried import tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.opened import OpenedRun

LAST = 10
"""The final loss is the mean of so many of the last losses, or of the last tenth where that is fewer."""

GATED = {
    "wall_ms": "step_ms", "zeros": "flushed", "subnormal": "subnormal", "flushed": "flushed", "cosine": "cosine",
    "skipped": "skipped", "nonfinite": "nonfinite",
}  # fmt: skip
"""Numbers by whose tolerances of the gate a change is told; memory is told by the gate's of memory."""

SMALLEST = 1e-3
"""A relative change below this is none."""

_GRADIENTS = frozenset({"weight_grad", "grad_output"})

SHARE_POINT = 1e-4
"""A share that changes by less than a hundredth of a point has not changed."""


@dataclass(frozen=True)
class Metric:
    """One number by which runs are compared.

    Attributes:
        key: its name in code; a component of memory as `memory:weights`.
        grade: how it was obtained.
        kind: number, share, bytes or scale.
        lower_is_better: which way is worse; None where neither is.
    """

    key: str
    grade: Grade = Grade.OBSERVED
    kind: str = "number"
    lower_is_better: bool | None = True


METRICS = (
    Metric("loss"),
    Metric("loss_common"),
    Metric("nonfinite", kind="share"),
    Metric("skipped", kind="share"),
    Metric("zeros", kind="share"),
    Metric("subnormal", kind="share"),
    Metric("flushed", Grade.MEASURED, "share"),
    Metric("cosine", Grade.MEASURED, lower_is_better=False),
    Metric("lowest_scale", kind="scale", lower_is_better=False),
    Metric("norm", lower_is_better=None),
    Metric("wall_ms"),
    Metric("steps", lower_is_better=None),
    Metric("examined", lower_is_better=None),
)
"""What is compared of every run; memory follows by component, as recorded."""


@dataclass(frozen=True)
class Change:
    """One number of one run beside that of the run it is compared with.

    Attributes:
        value: the number; None where it was not recorded.
        relative: change in proportion to the other; None where it can't be told, inf from zero.
        verdict: worse, better, same, other (neither is better), or unknown.
    """

    value: float | None
    relative: float | None
    verdict: str


@dataclass(frozen=True)
class Row:
    """One metric of all runs: of the one compared with, and of the others."""

    metric: Metric
    base: float | None
    changes: tuple[Change, ...]

    @property
    def badness(self) -> float:
        """How much worse it got at most: what got worse comes first, what can't be compared last."""
        return max((_badness(c) for c in self.changes), default=-np.inf)


def rows(base: OpenedRun, others: Sequence[OpenedRun]) -> list[Row]:
    """Return all metrics that one of the runs has, what got worse first."""
    until = last_common_step((base, *others))
    numbers = [numbers_of(opened, until) for opened in (base, *others)]
    memory = dict.fromkeys(key for own in numbers for key in own if key.startswith("memory:"))
    metrics = [*METRICS, *(Metric(key, kind="bytes") for key in memory)]
    found = []
    for metric in metrics:
        values = [own.get(metric.key) for own in numbers]
        if any(v is not None for v in values):
            changes = tuple(change(metric, values[0], v) for v in values[1:])
            found.append(Row(metric, values[0], changes))
    return sorted(found, key=lambda row: -row.badness)


def change(metric: Metric, base: float | None, value: float | None) -> Change:
    """Return what a number says beside that of the run it is compared with."""
    if base is None or value is None or not np.isfinite([base, value]).all():
        return Change(value, None, _of_what_is_not_finite(metric, base, value))
    away = value - base
    relative = away / abs(base) if base else (0.0 if not away else np.copysign(np.inf, away))
    if abs(relative) < SMALLEST or (metric.kind == "share" and abs(away) < SHARE_POINT):
        return Change(value, relative, "same")
    gated = "memory" if metric.key.startswith("memory:") else GATED.get(metric.key)
    if gated is not None and abs(GATES[gated].worsening(base, value)) <= 1.0:
        return Change(value, relative, "same")
    if metric.lower_is_better is None:
        return Change(value, relative, "other")
    return Change(value, relative, "worse" if (away > 0) is metric.lower_is_better else "better")


def _of_what_is_not_finite(metric: Metric, base: float | None, value: float | None) -> str:
    if base is None or value is None or metric.lower_is_better is None:
        return "unknown"
    was, now = np.isfinite(base), np.isfinite(value)
    return "same" if was == now else "worse" if was else "better"


def _badness(own: Change) -> float:
    if own.verdict == "worse":
        return 1e6 if own.relative is None else min(abs(own.relative), 1e5) + 2.0
    size = min(abs(own.relative or 0.0), 1e5) / 1e6
    return {"better": 1.0 + size, "other": 0.5, "same": 0.0}.get(own.verdict, -1.0)


def last_common_step(runs: Sequence[OpenedRun]) -> int | None:
    """Return the last step that all runs have, where they are of different lengths and have one; else None."""
    lasts = {int(opened.steps.step[-1]) for opened in runs if len(opened.steps)}
    return min(lasts) if len(lasts) > 1 else None


def numbers_of(opened: OpenedRun, until: int | None = None) -> dict[str, float]:
    """Return what one run came to, by the key of the metric; what was not recorded is left out.

    Args:
        opened: the run.
        until: step at which the loss is taken as well; None for none.
    """
    steps = opened.steps
    applied, scale, wall = (steps.column(name) for name in ("applied", "loss_scale", "wall_ms"))
    found = {
        "loss": _final(opened),
        "loss_common": None if until is None else _final(opened, until),
        "skipped": float(np.mean(applied[~np.isnan(applied)] == 0.0)) if (~np.isnan(applied)).any() else None,
        "lowest_scale": float(np.nanmin(scale)) if (~np.isnan(scale)).any() else None,
        "norm": _median(unscaled_norm(opened)),
        "wall_ms": _median(wall[steps.column("examined") != 1.0]),
        "steps": float(len(steps)),
        "examined": float(len(steps.examined)),
        **_of_tensors(opened),
        **_of_twins(opened),
        **_peak_memory(opened),
    }
    return {key: value for key, value in found.items() if value is not None}


def _median(values: NDArray[np.float64]) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def _final(opened: OpenedRun, until: int | None = None) -> float | None:
    """Return the mean of the last losses (up to a step); not finite where one of them is not, None without any."""
    table = opened.table("steps")
    if until is not None:
        table = table.filter(pc.less_equal(table["step"], until))
    losses = table["loss"].drop_null().to_numpy()
    return float(losses[-max(1, min(LAST, len(losses) // 10)) :].mean()) if len(losses) else None


def _of_tensors(opened: OpenedRun) -> dict[str, float | None]:
    index = opened.tensors
    if not len(index):
        return {}
    gradients = np.array([site.role == "weight_grad" for site in index.sites], bool)[index.site]
    numel = index.column("numel")[gradients].sum()
    found: dict[str, float | None] = {"nonfinite": float(np.mean(index.column("nonfinite") > 0.0))}
    if numel:
        found["zeros"] = float(index.column("zeros")[gradients].sum() / numel)
    half = np.array([s.role in _GRADIENTS and s.dtype in HALF_DTYPES for s in index.sites], bool)[index.site]
    if elements := index.column("numel")[half].sum():
        found["subnormal"] = float(index.column("subnormal")[half].sum() / elements)
    return found


def _of_twins(opened: OpenedRun) -> dict[str, float | None]:
    measured = [step.run for step in tried(opened) if step.run is not None]
    if not measured:
        return {}
    return {"flushed": measured[-1].flushed, "cosine": measured[-1].gradient.cosine}


def _peak_memory(opened: OpenedRun) -> dict[str, float]:
    """Return the bytes of each component at the peak of the step whose peak was highest."""
    table = opened.table("memory")
    peak = table.filter(pc.equal(table["phase"], "peak")).select(["step", "component", "bytes"]).to_pydict()
    by_step: dict[int, dict[str, float]] = {}
    for step, component, size in zip(peak["step"], peak["component"], peak["bytes"], strict=True):
        if component not in {"allocated", "reserved"}:
            own = by_step.setdefault(step, {})
            own[component] = own.get(component, 0.0) + size
    if not by_step:
        return {}
    highest = max(by_step.values(), key=lambda own: sum(own.values()))
    parts = sorted(highest.items(), key=lambda part: -part[1])
    return {"memory:total": sum(highest.values()), **{f"memory:{name}": size for name, size in parts}}
