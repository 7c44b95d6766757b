"""The estimate of what a format flushed, on samples of which the truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ampdoctor.formats import BF16, E5M2, FP16
from ampdoctor.histogram import EMPTY, ExponentHistogram
from ampdoctor.underflow import FlushEstimate, estimate_flushed, flushed_by_cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat

    Array = NDArray[np.float64]

SIZE = 40_000

RNG = np.random.default_rng(2)
_START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whichever_test_comes_first() -> None:
    RNG.bit_generator.state = _START


def _normal(sigma: float) -> Callable[[], Array]:
    return lambda: RNG.normal(scale=sigma, size=SIZE)


def _laplace(scale: float) -> Callable[[], Array]:
    return lambda: RNG.laplace(scale=scale, size=SIZE)


def _lognormal(median: float, spread: float) -> Callable[[], Array]:
    return lambda: np.exp2(RNG.normal(median, spread, SIZE)) * RNG.choice([-1.0, 1.0], SIZE)


# In units: multiples of the format's smallest subnormal.
NEAR_THE_EDGE = {
    "uniform +-100": lambda: RNG.uniform(-100.0, 100.0, SIZE),
    "uniform +-3": lambda: RNG.uniform(-3.0, 3.0, SIZE),
    **{f"normal {s}": _normal(s) for s in (1.0, 2.0, 4.0, 16.0)},
    **{f"laplace {s}": _laplace(s) for s in (1.0, 4.0, 16.0)},
    **{
        f"lognormal 2^{m} sd {s}": _lognormal(m, s)
        for m in (-2.0, 0.0, 2.0, 4.0, 6.0, 8.0)
        for s in (1.0, 2.0, 3.0, 4.0)
        if m >= 0.0 or s >= 2.0
    },
}
ALL_BUT_GONE = {f"normal {s}": _normal(s) for s in (0.25, 0.35, 0.5)}

formats = pytest.mark.parametrize("number_format", [FP16, BF16, E5M2], ids=lambda f: f.name)
structural = pytest.mark.parametrize("structural", [0.0, 0.5, 0.9])


def _truth(units: Array, number_format: NumberFormat, structural: float = 0.0) -> tuple[FlushEstimate, float, float]:
    """Return the estimate from what the cast left, beside the true shares of elements and of energy flushed."""
    unit = number_format.min_subnormal
    zeros = np.zeros(round(units.size * structural / (1.0 - structural)))
    wide = torch.from_numpy(np.concatenate([units * unit, zeros])).to(torch.float32)
    narrow = wide.to(getattr(torch, str(number_format.dtype))).double()
    gone = (wide != 0) & (narrow == 0)
    energy = (wide.double() / unit).square()
    estimate = estimate_flushed(ExponentHistogram.from_values(narrow.numpy()), number_format)
    assert estimate is not None
    return estimate, float(gone.sum() / (wide != 0).sum()), float(energy[gone].sum() / energy.sum())


@structural
@formats
@pytest.mark.parametrize("name", NEAR_THE_EDGE)
def test_what_is_near_the_edge_is_told_from_structural_zeros(
    name: str, number_format: NumberFormat, structural: float
) -> None:
    estimate, flushed, energy = _truth(NEAR_THE_EDGE[name](), number_format, structural)
    assert estimate.share == pytest.approx(flushed, abs=0.04, rel=0.1)
    assert estimate.energy_share == pytest.approx(energy, abs=0.01)


@structural
@formats
@pytest.mark.parametrize("name", ALL_BUT_GONE)
def test_where_one_unit_is_all_that_is_left_most_is_gone(
    name: str, number_format: NumberFormat, structural: float
) -> None:
    estimate, flushed, energy = _truth(ALL_BUT_GONE[name](), number_format, structural)
    assert flushed > 0.65
    assert estimate.share == pytest.approx(flushed, abs=0.16)
    assert estimate.energy_share == pytest.approx(energy, abs=0.4)


@formats
def test_all_the_zeros_at_once_bound_the_energy_as_well(number_format: NumberFormat) -> None:
    units = _lognormal(-3.0, 2.0)()
    estimate, flushed, energy = _truth(units, number_format)
    assert flushed > 0.8
    assert estimate.share == pytest.approx(flushed, abs=0.03)
    assert estimate.energy_share == pytest.approx(energy, rel=0.3)
    few = estimate_flushed(
        ExponentHistogram.from_values([number_format.min_subnormal] * 1000 + [0.0] * 10), number_format
    )
    assert few is not None
    assert few.flushed <= 10
    # Each held at most a quarter of a square unit, and what became one unit at least that.
    assert few.energy_share <= 10 / 1010


@formats
@pytest.mark.parametrize("kept", [0.1, 0.5])
@pytest.mark.parametrize("sigma", [2.0**8, 2.0**14])
def test_structural_zeros_far_above_the_edge_are_no_flush(
    number_format: NumberFormat, kept: float, sigma: float
) -> None:
    estimate, _, _ = _truth(_normal(sigma)(), number_format, 1.0 - kept)
    assert estimate.share < 0.01
    assert estimate.energy_share < 1e-6


@formats
@given(numbers=st.lists(st.floats(-1.0, 1.0, width=16), min_size=1, max_size=80))
def test_the_estimate_stays_between_nothing_and_all_zeros(number_format: NumberFormat, numbers: list[float]) -> None:
    narrow = torch.tensor(numbers).to(getattr(torch, str(number_format.dtype))).double()
    h = ExponentHistogram.from_values(narrow.numpy())
    estimate = estimate_flushed(h, number_format)
    if estimate is None:
        assert h.nonzero == 0
        return
    assert estimate.low == 0.0 <= estimate.flushed <= estimate.high == h.zeros
    assert 0.0 <= estimate.share <= 1.0
    assert 0.0 <= estimate.energy_share < 1.0


def test_nothing_but_zeros_cannot_be_extrapolated() -> None:
    assert estimate_flushed(ExponentHistogram.from_values([0.0] * 10), FP16) is None
    assert estimate_flushed(EMPTY, FP16) == FlushEstimate(0.0, 0.0, 0.0, 0, 0.0)


@formats
def test_before_a_cast_the_loss_is_counted(number_format: NumberFormat) -> None:
    units = _normal(1.0)()
    h = ExponentHistogram.from_values(units * number_format.min_subnormal)
    known = flushed_by_cast(h, number_format)
    _, flushed, energy = _truth(units, number_format)
    assert known.low == known.high == known.flushed == h.flushed(number_format)
    assert known.alive == h.nonzero - known.flushed
    assert known.share == pytest.approx(flushed, abs=1e-4)
    assert known.energy_share == pytest.approx(energy, abs=0.02)
