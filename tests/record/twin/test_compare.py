"""Comparisons by hand, and against numpy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ampdoctor.record.twin.compare import _CHUNK, _CHUNK_ON_CPU, Comparison, comparison_vector, decode, together

NORMAL = 2.0**-14
ALL = math.inf
"""A smallest normal number that everything is below."""

INF, NAN = math.inf, math.nan


def compared(values: torch.Tensor, reference: torch.Tensor, normal: float = NORMAL) -> Comparison:
    """Return the comparison of two tensors."""
    return decode(comparison_vector(values, reference, normal).numpy())


def about(**numbers: float) -> Any:
    """Return what a comparison with these numbers is equal to, but for rounding."""
    return pytest.approx(tuple(Comparison(**numbers)), rel=1e-7)


def test_by_hand() -> None:
    ours = torch.tensor([0.0, 0.0, 0.0, 3.0, -4.0, 2.0**-20], dtype=torch.float16)
    theirs = torch.tensor([2.0, 2.0**-30, 0.0, 3.0, -4.0, 2.0**-20])
    assert compared(ours, theirs) == about(
        numel=6, nonzero=5, flushed=2, too_small=1, subnormal=1, overflowed=0, nonfinite=0, nonfinite_fp32=0,
        dot=25, squares=25, squares_fp32=29, squares_lost=2.0**-60, absmax=4,
    )  # fmt: skip


def test_cosine_norm_ratio_and_energy_by_hand() -> None:
    c = compared(torch.tensor([3.0, 0.0]), torch.tensor([3.0, 4.0]), ALL)
    assert (c.cosine, c.norm_ratio, c.energy_lost) == pytest.approx((0.6, 0.6, 16 / 25), rel=1e-12)
    assert compared(torch.tensor([-2.0]), torch.tensor([2.0])).cosine == -1.0
    same = torch.tensor([0.1, 0.2, 0.3])
    assert compared(same, same).cosine == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("many", [1, 1 << 18])
def test_what_is_too_small_goes_by_the_loss_scale_of_the_values(many: int) -> None:
    """At 2^10 times the loss scale of the FP32 twin, 2^-24 there is 2^-14 here: a normal number of FP16."""
    reference = torch.tensor([2.0**-24, 2.0**-25, 1.0]).repeat(many)
    vector = comparison_vector(torch.zeros_like(reference), reference, NORMAL, 2.0**10)
    assert decode(vector.numpy()).flushed == 3 * many
    assert decode(vector.numpy()).too_small == many
    plain = compared(torch.zeros_like(reference), reference)
    assert plain.too_small == 2 * many


def test_nothing_to_compare_with() -> None:
    c = compared(torch.tensor([1.0]), torch.tensor([0.0]))
    assert (c.cosine, c.norm_ratio, c.energy_lost, c.flushed) == (None, None, None, 0)
    c = compared(torch.tensor([0.0]), torch.tensor([1.0]), ALL)
    assert (c.cosine, c.norm_ratio, c.energy_lost) == (None, 0.0, 1.0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    ours = torch.tensor([INF, NAN, -INF, 1.0, 0.0, INF])
    theirs = torch.tensor([1.0, 2.0, INF, INF, NAN, NAN])
    c = compared(ours, theirs)
    assert (c.nonfinite, c.nonfinite_fp32, c.overflowed) == (4, 4, 2)
    assert (c.nonzero, c.flushed) == (2, 0)  # the FP32 twin's NaN is no value that was flushed
    assert (c.dot, c.squares, c.squares_fp32, c.absmax) == (0, 1, 5, 1)
    assert (c.cosine, c.norm_ratio) == (None, None)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_of_nothing(shape: tuple[int, ...]) -> None:
    c = compared(torch.empty(shape), torch.empty(shape))
    assert c == Comparison(*[0.0] * 13)
    assert (c.cosine, c.norm_ratio, c.energy_lost) == (None, None, None)


def test_of_one_number_without_a_dimension() -> None:
    c = compared(torch.tensor(0.0), torch.tensor(0.5), ALL)
    assert (c.numel, c.flushed, c.squares_lost) == (1, 1, 0.25)


def test_elements_are_matched_by_place_and_not_by_memory() -> None:
    reference = torch.arange(1.0, 13.0).view(3, 4)
    values = reference.t().contiguous().t()
    assert values.stride() != reference.stride()
    assert compared(values, reference).cosine == pytest.approx(1.0, abs=1e-7)
    assert compared(values[::2, 1:3], reference[::2, 1:3]).dot == float(reference[::2, 1:3].square().sum())
    row = torch.tensor([[1.0, 2.0]]).expand(5, 2)
    assert compared(row, row).squares == pytest.approx(25, rel=1e-12)


def test_a_conjugate_s_imaginary_part_is_negative() -> None:
    imaginary = torch.tensor([1 + 2j]).conj().imag
    assert imaginary.is_neg()
    assert compared(imaginary, torch.tensor([-2.0])).cosine == 1.0


def test_a_complex_number_is_two() -> None:
    reference = torch.tensor([3.0 + 4.0j, 2.0**-30 + 1.0j])
    c = compared(torch.tensor([3.0 + 4.0j, 1.0j]), reference)
    assert (c.numel, c.nonzero, c.flushed, c.too_small) == (4, 4, 1, 1)
    assert c.squares == pytest.approx(26, rel=1e-12)
    assert compared(reference.conj(), reference.conj().resolve_conj()).cosine == pytest.approx(1.0)


def test_many_chunks_are_one() -> None:
    n = max(_CHUNK, _CHUNK_ON_CPU) + 3
    values = torch.zeros(n, dtype=torch.bfloat16)
    values[-1], values[0] = 8.0, 2.0
    c = compared(values, torch.ones(n), ALL)
    assert (c.numel, c.nonzero, c.flushed, c.absmax) == (n, n, n - 2, 8)
    sums = c.dot, c.squares, c.squares_fp32, c.squares_lost
    assert sums == pytest.approx((10, 68, n, n - 2), rel=1e-9)


def test_small_numbers_have_squares() -> None:
    """2^-100 squared is no FP32 number."""
    tiny = torch.tensor([2.0**-100, 0.0], dtype=torch.bfloat16)
    c = compared(tiny, torch.tensor([2.0**-100, 2.0**-100]), 2.0**-90)
    assert c.cosine == pytest.approx(math.sqrt(0.5), rel=1e-15)
    assert c.energy_lost == 0.5


def test_scales_are_divided_out() -> None:
    reference = torch.tensor([1.0, -2.0, 0.5])
    plain = compared(reference * 0.5, reference)
    scaled = compared(reference * 0.5 * 2.0**7, reference * 2.0**-3)
    assert scaled.divided(2.0**7, 2.0**-3) == about(**plain._asdict())
    assert scaled.cosine == plain.cosine
    assert (scaled.norm_ratio, plain.norm_ratio) == pytest.approx((2.0**9, 0.5), rel=1e-12)


def test_tensors_together() -> None:
    pairs = [(torch.tensor([3.0, 0.0]), torch.tensor([3.0, 1.0])), (torch.tensor([0.0]), torch.tensor([4.0]))]
    parts = [compared(*p) for p in pairs]
    whole = compared(torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs]))
    assert together(parts) == about(**whole._asdict())
    assert together([]) == Comparison(*[0.0] * 13)


FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 2.0**-24, 2.0**-26, 65504.0, INF, NAN]))


@settings(deadline=None, max_examples=150)
@given(
    st.data(),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
def test_against_numpy(data: st.DataObject, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    theirs = data.draw(hnp.arrays(np.float32, shape, elements=FLOATS))
    reference = torch.from_numpy(theirs.copy())
    values = reference.to(dtype)
    c = compared(values, reference)
    x, y = values.float().numpy().astype(np.float64), theirs.astype(np.float64)
    fx, fy = np.isfinite(x), np.isfinite(y)
    flushed = fy & (y != 0) & (x == 0)
    x0, y0 = np.where(fx, x, 0.0), np.where(fy, y, 0.0)
    assert c.numel == x.size
    assert c.nonzero == np.count_nonzero(y0)
    assert c.flushed == flushed.sum()
    assert c.too_small == (flushed & (np.abs(y0) < NORMAL)).sum()
    assert c.subnormal == ((np.abs(x0) < NORMAL) & (x0 != 0)).sum()
    assert c.overflowed == (fy & ~fx).sum()
    assert (c.nonfinite, c.nonfinite_fp32) == ((~fx).sum(), (~fy).sum())
    assert c.absmax == np.abs(x0).max(initial=0.0)
    sums = c.squares, c.squares_fp32, c.squares_lost
    assert sums == pytest.approx(
        ((x0**2).sum(), (y0**2).sum(), (y0[flushed & (np.abs(y0) < NORMAL)] ** 2).sum()), rel=1e-12
    )
    tolerance = 1e-7 * math.sqrt(c.squares) * math.sqrt(c.squares_fp32)
    assert c.dot == pytest.approx((x0 * y0).sum(), abs=tolerance)
