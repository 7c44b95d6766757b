"""The statistics of a tensor as numpy counts them, element by element in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ampdoctor.record.stats import HIGHEST, LOWEST, Statistics, StatisticsTable, decode, statistics_vector

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Expected:
    """What `Statistics` should hold; exponents as {exponent: count}."""

    zeros: int
    nan: int
    posinf: int
    neginf: int
    absmax: float
    exponents: dict[int, int]
    sum_squares: float


def expected(tensor: torch.Tensor) -> Expected:
    """Count the elements of `tensor`."""
    x = np.asarray(tensor.detach().double().reshape(-1).tolist(), dtype=np.float64)
    finite = x[np.isfinite(x)]
    nonzero = finite[finite != 0]
    exponents = np.clip(np.frexp(nonzero)[1] - 1, LOWEST, HIGHEST)
    found, counts = np.unique(exponents, return_counts=True)
    with np.errstate(over="ignore", under="ignore"):
        energy = float(np.square(finite).sum())
    return Expected(
        zeros=int((finite == 0).sum()),
        nan=int(np.isnan(x).sum()),
        posinf=int(np.isposinf(x).sum()),
        neginf=int(np.isneginf(x).sum()),
        absmax=float(np.abs(finite).max(initial=0.0)),
        exponents=dict(zip(found.tolist(), counts.tolist(), strict=True)),
        sum_squares=energy,
    )


def measured(tensor: torch.Tensor) -> Statistics:
    """Return what plain torch operations measure."""
    return decode(statistics_vector(tensor).numpy())


def by_kernel(tensor: torch.Tensor) -> Statistics:
    """Return what the recorder measures of a tensor on the CPU."""
    table = StatisticsTable()
    table.measure(0, tensor)
    (row,), counts = table.filled(1, {})
    zeros, nan, posinf, neginf, absmax, squares, lowest, bins = row.tolist()
    assert len(counts) == bins
    return Statistics(
        int(zeros), int(nan), int(posinf), int(neginf), absmax, squares, int(lowest), counts.tolist(), []
    )  # fmt: skip


def exponents_of(found: Statistics) -> dict[int, int]:
    """Return the histogram as {exponent: count}."""
    return {found.exp_lowest + i: n for i, n in enumerate(found.exp_counts) if n}


def as_expected(found: Statistics) -> dict[str, Any]:
    """Return `found` in the shape of `Expected`."""
    return {
        "zeros": found.zeros, "nan": found.nan, "posinf": found.posinf, "neginf": found.neginf,
        "absmax": found.absmax, "exponents": exponents_of(found), "sum_squares": found.sum_squares,
    }  # fmt: skip
