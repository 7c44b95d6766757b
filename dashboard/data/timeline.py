"""What the timeline shows of a run, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.data.steps import Steps

Points = tuple["NDArray[np.float64]", "NDArray[np.float64]"]
"""Where on the axis, and the values there."""


def unscaled_norm(opened: OpenedRun) -> NDArray[np.float64]:
    """Return the gradient's norm by step, as the user's own clipping saw it with the loss scale divided out.

    A norm that was taken before `unscale_` is of scaled gradients; the calls of the step say which it was.
    """
    steps = opened.steps
    norm = steps.column("grad_norm")
    scale = steps.column("loss_scale")
    unscaled = _unscaled_before_clip(opened, steps)
    with np.errstate(all="ignore"):  # of a run that has diverged
        return np.where(unscaled | np.isnan(scale), norm, norm / np.where(scale > 0.0, scale, 1.0))


def _unscaled_before_clip(opened: OpenedRun, steps: Steps) -> NDArray[np.bool_]:
    calls = opened.table("calls")
    first: dict[str, dict[int, int]] = {"unscale": {}, "clip_norm": {}}
    for name, seen in first.items():
        some = calls.filter(pc.equal(calls["call"], name)).select(["step", "seq"]).to_pydict()
        for step, seq in zip(some["step"], some["seq"], strict=True):
            seen.setdefault(step, seq)
    order = {s: first["unscale"].get(s, seq + 1) < seq for s, seq in first["clip_norm"].items()}
    usual = bool(order) and sum(order.values()) * 2 > len(order)
    return np.array([order.get(int(step), usual) for step in steps.step], bool)


def shares_by_step(opened: OpenedRun, role: str, *columns: str) -> list[Points]:
    """Return for each of `columns`, all of them counts, the examined steps and its share of a role's elements on each.

    Those of one role are counted in one go: of a long run that is a look at millions of tensors.
    """
    index = opened.tensors
    wanted = np.array([site.role == role for site in index.sites], bool)
    if not wanted.any():
        return [(np.zeros(0), np.zeros(0)) for _ in columns]
    rows = wanted[index.site]
    steps, place = np.unique(index.step[rows], return_inverse=True)
    numel = np.maximum(np.bincount(place, index.column("numel")[rows]), 1.0)
    return [(steps.astype(float), np.bincount(place, index.column(name)[rows]) / numel) for name in columns]


def measured_flushed(opened: OpenedRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the steps with a twin, and the share of the gradient that the run flushed on each: measured."""
    twins = opened.table("twins")
    own = twins.filter(
        pc.and_(pc.equal(twins["counterfactual"], "run"), pc.equal(twins["role"], "gradient"))
    ).select(["step", "flushed", "nonzero"])  # fmt: skip
    found = {r["step"]: r["flushed"] / max(r["nonzero"], 1) for r in own.to_pylist()}
    return np.array([*found], float), np.array([*found.values()], float)


def loss_in_fp32(opened: OpenedRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the steps with an FP32 twin, and the loss that it came to."""
    twins = opened.table("twins")
    own = twins.filter(pc.and_(pc.equal(twins["counterfactual"], "fp32"), pc.equal(twins["role"], "loss")))
    found: dict[int, float] = {}
    for row in own.select(["step", "value"]).to_pylist():
        if row["value"] is not None:
            found[row["step"]] = found.get(row["step"], 0.0) + row["value"]
    return np.array([*found], float), np.array([*found.values()], float)


def scaler_steps(opened: OpenedRun, event: str) -> NDArray[np.int64]:
    """Return the steps on which a scaler did `event`."""
    scaler = opened.table("scaler")
    found: NDArray[np.int64] = np.unique(scaler.filter(pc.equal(scaler["event"], event))["step"].to_numpy())
    return found
