"""The exponent histogram against real casts and against arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ampdoctor.formats import BF16, E4M3FN, E5M2, FP16, NumberFormat
from ampdoctor.histogram import EMPTY, ExponentHistogram, merge

CAST = [FP16, BF16, E4M3FN, E5M2]

# FP32's normal numbers, with zeros, both infinities and NaN among them.
_finite = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
_special = st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
values = st.lists(st.one_of(_finite, _special), max_size=60)
finite_values = st.lists(_finite, max_size=60)


def _same(a: ExponentHistogram, b: ExponentHistogram) -> None:
    for name in ("zeros", "nan", "posinf", "neginf", "nonzero", "numel"):
        assert getattr(a, name) == getattr(b, name)
    assert a.absmax == b.absmax
    assert math.isclose(a.sum_squares, b.sum_squares, rel_tol=1e-9)
    for exponent in range(-160, 140):
        assert a.count_below(exponent) == b.count_below(exponent)


@given(values)
def test_counts_every_element_once(numbers: list[float]) -> None:
    h = ExponentHistogram.from_values(numbers)
    assert h.numel == len(numbers)
    assert h.nonfinite == sum(not math.isfinite(n) for n in numbers)
    assert h.zeros == sum(n == 0.0 for n in numbers)


@given(_finite.filter(bool))
def test_an_element_is_in_the_bin_of_its_exponent(number: float) -> None:
    exponent = math.frexp(number)[1] - 1
    h = ExponentHistogram.from_values([number])
    assert h.count_below(exponent) == 0
    assert h.count_below(exponent + 1) == 1


@given(values, values)
def test_merging_is_counting_all_at_once(a: list[float], b: list[float]) -> None:
    parts = [ExponentHistogram.from_values(a), ExponentHistogram.from_values(b)]
    _same(merge(parts), ExponentHistogram.from_values([*a, *b]))


@given(values)
def test_merging_with_nothing_changes_nothing(numbers: list[float]) -> None:
    h = ExponentHistogram.from_values(numbers)
    _same(merge([EMPTY, h, EMPTY]), h)
    assert merge([]).numel == 0


@given(finite_values, st.integers(-20, 20))
def test_shifting_is_scaling(numbers: list[float], shift: int) -> None:
    scaled = [float(n) * 2.0**shift for n in numbers]
    _same(ExponentHistogram.from_values(numbers).shifted(shift), ExponentHistogram.from_values(scaled))


@pytest.mark.parametrize("number_format", CAST, ids=lambda f: f.name)
@given(numbers=finite_values, near=st.lists(st.floats(-3.0, 3.0), max_size=30))
def test_flushed_is_what_a_real_cast_flushes(
    number_format: NumberFormat, numbers: list[float], near: list[float]
) -> None:
    # `near` is spread around the format's edge, where it matters; a tie is left out (it flushes, and is not counted).
    edge = 2.0**number_format.flush_exponent
    wide = torch.tensor([*numbers, *(edge * 2.0**e for e in near if e != 0.0)], dtype=torch.float32)
    wide = wide[wide.abs() != edge]
    narrow = wide.to(getattr(torch, str(number_format.dtype))).to(torch.float32)
    expected = int(((wide != 0) & (narrow == 0)).sum())
    assert ExponentHistogram.from_values(wide.numpy()).flushed(number_format) == expected


@pytest.mark.parametrize("number_format", CAST, ids=lambda f: f.name)
@given(numbers=finite_values)
def test_overflow_bounds_hold_what_a_real_cast_overflows(number_format: NumberFormat, numbers: list[float]) -> None:
    # A tie goes to even: up to infinity in FP16, down to 448 in E4M3fn.
    wide = torch.tensor([n for n in numbers if abs(n) != number_format.overflow_at], dtype=torch.float32)
    narrow = wide.to(getattr(torch, str(number_format.dtype))).to(torch.float32)
    # Without an infinity, torch gives NaN or the largest number, by version.
    beyond = ~torch.isfinite(narrow) if number_format.has_inf else wide.abs() > number_format.overflow_at
    bounds = ExponentHistogram.from_values(wide.numpy()).overflowed(number_format)
    assert bounds.low <= int(beyond.sum()) <= bounds.high
    assert (bounds.high == 0) == (not beyond.any())


@pytest.mark.parametrize("number_format", CAST, ids=lambda f: f.name)
def test_two_million_values_agree_with_the_cast(number_format: NumberFormat) -> None:
    spread = (number_format.max_exponent - number_format.min_subnormal_exponent) / 2.0
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randn(2_000_000, generator=generator) * spread + number_format.min_exponent
    wide = torch.exp2(exponents.clamp(-120, 120))
    narrow = wide.to(getattr(torch, str(number_format.dtype))).to(torch.float32)
    h = ExponentHistogram.from_values(wide.numpy())
    assert h.flushed(number_format) == int((narrow == 0).sum())
    small = narrow.abs() < number_format.min_normal
    # Rounding lifts a few of the largest subnormals to the smallest normal number.
    rounded_up = int(((wide < number_format.min_normal) & (narrow >= number_format.min_normal)).sum())
    assert h.subnormal(number_format) - rounded_up == int((small & (narrow != 0)).sum())


def test_energy_below_counts_squares() -> None:
    h = ExponentHistogram.from_values([1.0] * 3 + [0.25] * 16)
    assert h.energy_below(0) == pytest.approx(0.25)
    assert h.energy_below(1) == 1.0
    assert EMPTY.energy_below(0) == 0.0


def test_rms_is_of_the_finite_elements() -> None:
    assert ExponentHistogram.from_values([3.0, 0.0, math.inf, math.nan]).rms == pytest.approx(3.0 / np.sqrt(2))
    assert EMPTY.rms == 0.0
