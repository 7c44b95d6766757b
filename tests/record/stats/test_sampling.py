"""A sample of a large tensor: its shares keep their bound, its largest magnitude is exact, nothing random is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from ampdoctor.engine import diagnose
from ampdoctor.record.stats import Statistics, StatisticsTable
from ampdoctor.record.stats.sampling import CONFIDENCE, DRAWN, ERROR, draw, scaled_up
from tests.record.stats.reference import expected, exponents_of

if TYPE_CHECKING:
    from tests.record.recording import Recording

SIZE = 5 * DRAWN + 123


def _estimate(tensor: torch.Tensor) -> Statistics:
    sample = draw(tensor)
    assert sample is not None
    table = StatisticsTable()
    table.measure(0, sample.values)
    (row,), counts = scaled_up(table.filled(1, {}), {0: sample.whole})
    zeros, nan, posinf, neginf, absmax, squares, lowest, bins = row.tolist()
    assert len(counts) == bins
    return Statistics(
        int(zeros), int(nan), int(posinf), int(neginf), absmax, squares, int(lowest), counts.tolist(), []
    )  # fmt: skip


def _normal(seed: int, spread: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.exp(spread * torch.randn(SIZE, generator=generator)) * torch.randn(SIZE, generator=generator)


def test_the_bound_is_hoeffdings() -> None:
    assert 2.0 * np.exp(-2.0 * DRAWN * ERROR**2) == pytest.approx(1.0 - CONFIDENCE)
    assert pytest.approx(0.00636, abs=1e-5) == ERROR


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(4))
def test_shares_keep_their_bound_and_counts_add_up(seed: int, dtype: torch.dtype) -> None:
    x = _normal(seed, spread=2.0).clamp(-6e4, 6e4)
    x[torch.rand(SIZE, generator=torch.Generator().manual_seed(seed)) < 0.2] = 0.0
    x = x.to(dtype)
    found, truth = _estimate(x), expected(x)
    assert found.zeros + sum(found.exp_counts) == SIZE
    assert min(found.exp_counts) >= 0
    assert found.absmax == truth.absmax
    bins = exponents_of(found)
    assert max(bins) == max(truth.exponents)
    wrong = [abs(bins.get(e, 0) - n) / SIZE for e, n in truth.exponents.items()] + [
        abs(found.zeros - truth.zeros) / SIZE
    ]
    # One in a hundred may be off by more; of some 30 shares all but two are not.
    assert sorted(wrong)[-3] <= ERROR
    assert found.sum_squares == pytest.approx(truth.sum_squares, rel=0.5)


@pytest.mark.parametrize("size", [1e-310, 1e-60, 1e60])
def test_beyond_the_bins_it_is_counted_in_the_last_ones(size: float) -> None:
    x = _normal(0).clamp(-2.0, 2.0).double() * size
    found, truth = _estimate(x), expected(x)
    assert set(exponents_of(found)) == set(truth.exponents)
    assert found.absmax == truth.absmax


@pytest.mark.parametrize("dtype", [d for d in (getattr(torch, "float8_e4m3fn", None),) if d is not None])
def test_what_torch_takes_no_extremes_of_is_looked_at_whole(dtype: torch.dtype) -> None:
    assert draw(torch.ones(SIZE).to(dtype)) is None


@pytest.mark.parametrize("period", [2, 5, 6, 64, 1024, SIZE // DRAWN])
def test_what_comes_round_in_the_tensor_is_not_mistaken_for_the_whole(period: int) -> None:
    x = torch.ones(SIZE)
    x[::period] = 0.0
    assert _estimate(x).zeros / SIZE == pytest.approx(1.0 / period, abs=ERROR)


def test_the_largest_element_counts_even_where_it_was_not_drawn() -> None:
    x = torch.zeros(SIZE)
    x[4321] = -(2.0**20)
    found = _estimate(x)
    assert (found.absmax, found.zeros, exponents_of(found)) == (2.0**20, SIZE - 1, {20: 1})
    y = torch.ones(SIZE)
    y[777] = 2.0**9
    assert exponents_of(_estimate(y)) == {0: SIZE - 1, 9: 1}


def test_zeros_alone() -> None:
    found = _estimate(torch.zeros(SIZE))
    assert (found.zeros, found.exp_counts, found.absmax) == (SIZE, [], 0.0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_one_nonfinite_element_has_the_tensor_looked_at_whole(wrong: float) -> None:
    x = torch.ones(SIZE)
    x[31415] = wrong
    assert draw(x) is None


def test_small_and_complex_tensors_are_looked_at_whole() -> None:
    assert draw(torch.ones(DRAWN)) is None
    assert draw(torch.ones(SIZE, dtype=torch.complex64)) is None


def test_views_and_no_random_number_is_used() -> None:
    x = _normal(0)[: 4 * DRAWN].reshape(4, -1)
    before = torch.get_rng_state(), repr(np.random.get_state())
    assert repr(_estimate(x.t())) == repr(_estimate(x.t()))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == repr(np.random.get_state())


def test_a_recording_says_what_was_sampled(recording: Recording) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 400), nn.Linear(400, 2))
    optimizer = torch.optim.Adam(model.parameters())
    with recording.start(every=1, prove=False, sample_above=100_000):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 300)).square().mean().backward()
            optimizer.step()
    rows = recording.run.tensors()
    sampled = {(r.module, r.role, r.slot) for r in rows if r.sampled is not None}
    assert ("0", "weight", "weight") in sampled
    assert ("0", "weight_grad", "weight") in sampled
    assert ("0", "update", "weight") in sampled
    assert ("0", "optimizer_state", "weight.exp_avg") in sampled
    assert {r.numel for r in rows if r.sampled} == {300 * 400}
    assert all((r.sampled, r.sample_error) == (DRAWN, ERROR) for r in rows if r.numel == 300 * 400)
    assert all(r.zeros + sum(r.exp_counts) == r.numel for r in rows)
    (gap,) = (g for g in diagnose(recording.run).examined.gaps if "sample" in g)
    assert "off by 0.6 points" in gap
