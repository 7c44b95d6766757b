"""The stations of a mixed-precision step, and at which of them each rule finds its fault."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.finding import Finding


class Station(str, Enum):
    """One station, in the order in which a step passes them."""

    WEIGHTS = "weights"
    CAST = "cast"
    FORWARD = "forward"
    LOSS = "loss"
    SCALE = "scale"
    BACKWARD = "backward"
    UNSCALE = "unscale"
    CLIP = "clip"
    CHECK = "check"
    STEP = "step"
    UPDATE = "update"


_RULES_AT: dict[Station, tuple[str, ...]] = {
    Station.WEIGHTS: ("master-weights-missing", "zero-init-deadlock"),
    Station.CAST: (
        "amp-memory-not-reduced", "amp-slower", "autocast-cache-memory", "autocast-not-active",
        "autocast-stale-weight-cache", "fp8-scale-stale",
    ),
    Station.FORWARD: (
        "activation-overflow", "attention-overflow", "bf16-integer-precision", "buffer-poisoned-by-overflow",
        "cancellation-half", "dead-units", "dtype-mismatch", "eps-underflow", "faster-precision", "fp32-by-policy",
        "gpu-throttled", "mask-constant-overflow", "nan-not-precision", "near-oom", "norm-overflow",
        "rope-half-precision", "sizes-miss-tensor-cores", "train-infer-dtype-mismatch",
    ),
    Station.LOSS: (
        "bf16-metric-accumulator", "gradient-penalty-scaled", "log-of-zero-underflow", "loss-in-half", "loss-overflow",
        "memory-leak-across-steps",
    ),
    Station.SCALE: (
        "loss-scale-too-large", "loss-scale-too-small", "scale-below-one", "scaler-disabled",
        "scaler-state-not-restored", "scaler-unneeded", "unscaled-backward",
    ),
    Station.BACKWARD: (
        "anomaly-false-alarm", "backward-under-autocast", "checkpoint-autocast-lost", "comm-hook-underflow",
        "custom-function-dtype", "gradient-underflow", "half-grad-accumulation", "ranks-differ", "vanishing-gradient",
    ),
    Station.UNSCALE: ("accum-unscale-mixed", "unscale-fp16-gradients", "unscale-twice"),
    Station.CLIP: ("clip-before-unscale",),
    Station.CHECK: ("no-inf-checks", "stale-inf-grads"),
    Station.STEP: (
        "adam-eps-underflow", "ema-half-stuck", "lost-updates", "optimizer-state-half", "optimizer-stepped-twice",
        "scaler-bypassed", "scheduler-step-on-skipped",
    ),
    Station.UPDATE: ("scale-collapse", "scale-hunting", "scaler-update-mid-iteration", "scaler-update-missing"),
}  # fmt: skip

STATION_OF: dict[str, Station] = {rule: station for station, rules in _RULES_AT.items() for rule in rules}
"""Where the fault lies that a rule finds; every rule is here, and a test says which is not."""


def findings_at(found: Iterable[Finding]) -> dict[Station, list[Finding]]:
    """Return findings and their consequences by station, root findings first."""
    at: dict[Station, list[Finding]] = {station: [] for station in Station}
    roots = list(found)
    for finding in (*roots, *(consequence for root in roots for consequence in root.consequences)):
        station = STATION_OF.get(finding.name)
        if station is not None:
            at[station].append(finding)
    return at


def holds_on(finding: Finding, step: int) -> bool:
    """Whether a finding was seen on a step, as far as it says when it was."""
    first, last = finding.location.first_step, finding.location.last_step
    return (first is None or first <= step) and (last is None or step <= last)
