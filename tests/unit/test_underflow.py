"""The estimate of what FP16 flushed, on samples of which the truth is known."""

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
    from numpy.typing import NDArray

UNIT = 2.0**-24
"""FP16's smallest subnormal."""


def _truth(x: NDArray[np.float64]) -> tuple[FlushEstimate, float, float]:
    """Return the estimate from what FP16 left of `x`, and the true shares of elements and of energy flushed."""
    wide = torch.from_numpy(x).to(torch.float32)
    narrow = wide.to(torch.float16).to(torch.float32)
    gone = (wide != 0) & (narrow == 0)
    energy = wide.double().square()
    estimate = estimate_flushed(ExponentHistogram.from_values(narrow.numpy()), FP16)
    assert estimate is not None
    return estimate, float(gone.sum() / (wide != 0).sum()), float(energy[gone].sum() / energy.sum())


def _normal(sigma: float, size: int = 40_000) -> NDArray[np.float64]:
    return np.random.default_rng(1).normal(scale=sigma * UNIT, size=size)


@pytest.mark.parametrize("sigma", [16.0, 4.0, 2.0, 1.0, 0.5, 0.35])
def test_normal_samples_are_estimated_within_a_few_points(sigma: float) -> None:
    estimate, flushed, energy = _truth(_normal(sigma))
    assert estimate.share == pytest.approx(flushed, abs=0.04)
    assert estimate.energy_share == pytest.approx(energy, abs=0.04)


@pytest.mark.parametrize("median", [8, 6, 4, 2, 0, -2])
@pytest.mark.parametrize("spread", [2.0, 3.0, 4.0])
def test_lognormal_samples_are_estimated_within_a_few_points(median: int, spread: float) -> None:
    rng = np.random.default_rng(2)
    x = (
        np.exp2(rng.normal(scale=spread, size=40_000))
        * UNIT
        * 2.0**median
        * rng.choice([-1.0, 1.0], 40_000)
    )
    estimate, flushed, energy = _truth(x)
    assert estimate.share == pytest.approx(flushed, abs=0.05)
    assert estimate.energy_share == pytest.approx(energy, abs=0.05)


def test_a_gradient_all_but_gone_is_told_as_such() -> None:
    estimate, flushed, energy = _truth(_normal(0.25))
    assert flushed > 0.95
    assert energy > 0.7
    assert 0.7 < estimate.share <= flushed + 0.01
    assert 0.3 < estimate.energy_share <= energy + 0.01


@pytest.mark.parametrize("kept", [0.1, 0.5])
@pytest.mark.parametrize("sigma", [2.0**8, 2.0**14])
def test_structural_zeros_are_no_flush(kept: float, sigma: float) -> None:
    rng = np.random.default_rng(3)
    x = np.where(rng.random(40_000) < kept, _normal(sigma), 0.0)
    estimate, _, _ = _truth(x)
    assert estimate.share < 0.01
    assert estimate.energy_share < 1e-6


@given(st.lists(st.floats(-1.0, 1.0, width=16), min_size=1, max_size=80))
def test_the_estimate_stays_between_nothing_and_all_zeros(numbers: list[float]) -> None:
    h = ExponentHistogram.from_values(numbers)
    estimate = estimate_flushed(h, FP16)
    if estimate is None:
        assert h.nonzero == 0
        return
    assert estimate.low == 0.0 <= estimate.flushed <= estimate.high == h.zeros
    assert 0.0 <= estimate.share <= 1.0
    assert 0.0 <= estimate.energy_share < 1.0


def test_nothing_but_zeros_cannot_be_extrapolated() -> None:
    assert estimate_flushed(ExponentHistogram.from_values([0.0] * 10), FP16) is None
    assert estimate_flushed(EMPTY, FP16) == FlushEstimate(0.0, 0.0, 0.0, 0, 0.0)


@pytest.mark.parametrize("number_format", [FP16, BF16, E5M2], ids=lambda f: f.name)
def test_before_a_cast_the_loss_is_counted(number_format: object) -> None:
    assert number_format in {FP16, BF16, E5M2}
    h = ExponentHistogram.from_values(_normal(1.0))
    known = flushed_by_cast(h, FP16)
    assert known.low == known.high == known.flushed == h.flushed(FP16)
    assert known.alive == h.nonzero - h.flushed(FP16)
    assert known.energy_share == pytest.approx(_truth(_normal(1.0))[2], abs=0.02)
