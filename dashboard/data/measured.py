"""What twins measured, by site and step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.opened import OpenedRun

NEEDED = ("step", "module", "role", "slot", "nonzero", "flushed", "too_small", "cosine", "absmax")


class Measured(NamedTuple):
    """The run's own tensors beside their FP32 twins, of the sites of one role.

    Attributes:
        site: number of each one's site.
        step: its step.
        nonzero: elements that are nonzero in FP32.
        flushed: those of them that the run's format made zero because they were too small.
        cosine: to the FP32 twin; NaN where either is all zero or not finite.
    """

    site: NDArray[np.intp]
    step: NDArray[np.int64]
    nonzero: NDArray[np.float64]
    flushed: NDArray[np.float64]
    cosine: NDArray[np.float64]


def measured(opened: OpenedRun, role: str) -> Measured:
    """Return what twins measured of the sites of a role."""
    numbers = {(s.module, s.slot): n for n, s in enumerate(opened.tensors.sites) if s.role == role}
    twins = opened.table("twins")
    own = twins.filter(pc.and_(pc.equal(twins["counterfactual"], "run"), pc.equal(twins["role"], role))).select(NEEDED)
    places = zip(own["module"].to_pylist(), own["slot"].to_pylist(), strict=True)
    site = np.array([numbers.get(place, -1) for place in places], np.intp)
    flushed = pc.coalesce(own["too_small"], own["flushed"])
    known = site >= 0
    numbers_of = (_floats(own["nonzero"]), _floats(flushed), _floats(own["cosine"]))
    return Measured(site[known], own["step"].to_numpy()[known], *(values[known] for values in numbers_of))


def fp32_histogram(opened: OpenedRun, role: str, module: str, slot: str, step: int) -> dict[int, int]:
    """Return the exponents of a tensor in FP32, the loss scale divided out; empty where it was not measured."""
    twins = opened.table("twins")
    chosen = pc.and_(_of_site(twins, role, module, slot), pc.equal(twins["step"], step))
    found: dict[int, int] = {}
    for row in twins.filter(chosen).select(["exp_lowest", "exp_counts"]).to_pylist():
        for place, count in enumerate(row["exp_counts"] or ()):
            found[row["exp_lowest"] + place] = found.get(row["exp_lowest"] + place, 0) + count
    return found


def twinned_steps(opened: OpenedRun, role: str, module: str, slot: str) -> list[int]:
    """Return the steps on which FP32 was measured at a site."""
    twins = opened.table("twins")
    return sorted(set(twins.filter(_of_site(twins, role, module, slot))["step"].to_pylist()))


def _of_site(twins: pa.Table, role: str, module: str, slot: str) -> pa.ChunkedArray:
    """Return which rows are FP32 twins of a site."""
    chosen = pc.equal(twins["counterfactual"], "fp32")
    for name, value in {"role": role, "module": module, "slot": slot}.items():
        chosen = pc.and_(chosen, pc.equal(twins[name], value))
    return chosen


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    found: NDArray[np.float64] = pc.cast(column, "float64").to_numpy(zero_copy_only=False)
    return found
