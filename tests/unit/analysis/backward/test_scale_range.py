"""Which loss scales hold the gradients seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ampdoctor.analysis.backward.gradients import gradient_steps
from ampdoctor.analysis.backward.scale_range import ScaleRange, lost_at, scale_range
from ampdoctor.analysis.words.range_report import no_range_evidence, range_evidence
from ampdoctor.trace.builder import RunBuilder


def _range(before: dict[int, int], scale: float = 1.0, **columns: Any) -> ScaleRange:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=before, loss_scale=scale, **columns)
    return scale_range(gradient_steps(run.build()))


def _largest(scales: ScaleRange) -> float:
    assert scales.peak is not None
    return scales.peak.largest_scale


@pytest.mark.parametrize("scale", [1.0, 4.0, 65536.0])
def test_the_largest_scale_keeps_the_peak_a_binade_below_the_max(scale: float) -> None:
    scales = _range({-20: 10}, scale)
    peak = 2.0**-20 / scale
    assert scales.peak is not None
    assert scales.peak.value == peak
    assert 65504 / 4 < scales.peak.largest_scale * peak <= 65504 / 2
    assert scales.current == scale


def test_torchs_default_is_suggested_where_it_holds_the_gradients() -> None:
    assert _range({-30: 1000, -20: 10}).suggested == 65536.0


def test_where_the_default_overflows_the_largest_that_fits_is_suggested() -> None:
    scales = _range({3: 10})
    assert scales.suggested == _largest(scales) < 65536.0


def test_where_the_default_flushes_the_largest_that_fits_is_suggested() -> None:
    scales = _range({-50: 1000})
    assert scales.suggested == _largest(scales) > 65536.0


def test_what_is_left_at_a_scale_is_counted_before_a_cast() -> None:
    scales = _range({-30: 1000, -20: 10})
    assert scales.lost == 0.0


def test_there_is_room_only_below_the_largest() -> None:
    assert _range({-30: 10}).has_room
    assert not _range({14: 10}, 65536.0).has_room


def test_a_range_that_no_scale_holds_is_counted_in_binades() -> None:
    run = RunBuilder().step()
    for module, exponent in (("head", 14), ("aux", -31)):
        run.tensor(module, "grad_output", slot="cast", cast_to="float16", exponents={exponent: 9})
    scales = scale_range(gradient_steps(run.build()))
    assert not scales.has_room
    assert scales.binades == 46


def test_gradients_that_shrink_over_the_steps_span_no_more_for_it() -> None:
    run = RunBuilder()
    for top in (10, -10, -30):
        run.step().tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={top: 10, top - 9: 10})
    run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={-30: 10})
    assert scale_range(gradient_steps(run.build())).binades == 1


def test_an_overflowed_gradient_was_larger_than_what_is_left_of_it() -> None:
    run = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents={15: 9}, posinf=1)
    scales = scale_range(gradient_steps(run.build()))
    assert scales.peak is not None
    assert scales.peak.value == 2 * 65504
    assert _largest(scales) == 0.25


def test_a_gradient_that_is_gone_may_have_been_larger() -> None:
    run = RunBuilder().step(loss=1.0).tensor("a", "grad_output", dtype="float16", zeros=10)
    assert scale_range(gradient_steps(run.build())).gone == 1
    assert _range({-20: 10}).gone == 0


def test_weight_gradients_divided_in_user_code_are_left_out() -> None:
    run = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents={-20: 9})
    run.tensor("a", "weight_grad", slot="weight", exponents={-10: 100}, shape=[10, 10])
    steps = gradient_steps(run.build())
    for scaled, peak in ((True, 2.0**-10), (False, 2.0**-20)):
        scales = scale_range(steps, weights_scaled=scaled)
        assert scales.peak is not None
        assert scales.peak.value == peak


@pytest.mark.parametrize("scale", [1.0, 2.0**20])
def test_where_every_gradient_is_zero_nothing_is_made_up(scale: float) -> None:
    run = RunBuilder().step(loss=1.0, loss_scale=scale)
    for module in ("head", "body"):
        run.tensor(module, "grad_output", dtype="float16", zeros=100, loss_scale=scale)
    scales = scale_range(gradient_steps(run.build()))
    assert (scales.peak, scales.binades, scales.lost) == (None, None, None)
    assert scales.suggested == (65536.0 if scale == 1.0 else None)
    assert {e.name for e in range_evidence(scales)} == {"gradients_gone"}
    assert no_range_evidence(scales) == []


@pytest.mark.parametrize("scale", [2.0**k for k in (0, 8, 16, 17, 20, 30)])
@pytest.mark.parametrize("top", [-40, -24, -10, 0, 14])
def test_no_smaller_scale_is_ever_suggested(scale: float, top: int) -> None:
    suggested = _range({top: 10, top - 3: 40}, scale).suggested
    assert suggested is None or suggested >= 2.0 * scale


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("factor", [2.0, 4.0, 16.0])
def test_what_a_larger_scale_would_leave_lost_follows_the_tail(sigma: float, factor: float) -> None:
    units = np.random.default_rng(4).normal(scale=sigma, size=50_000)
    run = RunBuilder().step(loss=1.0)
    left = np.round(units) * 2.0**-24
    run.values("a", "grad_output", left, dtype="float16")
    (site,) = gradient_steps(run.build())[0].sites
    true = (units[np.abs(units) <= 0.5 / factor] ** 2).sum() / (units**2).sum()
    assert lost_at(site, factor) == pytest.approx(true, rel=0.7, abs=1e-6)
    assert lost_at(site, 2.0 * factor) < lost_at(site, factor) / 3.0  # type: ignore[operator]


def test_the_module_with_the_smallest_gradients_is_known() -> None:
    run = RunBuilder().step(loss=1.0)
    for module, exponent in (("head", 14), ("middle", -20), ("deep", -22)):
        run.tensor(module, "grad_output", dtype="float16", exponents={exponent: 9})
    assert scale_range(gradient_steps(run.build())).smallest_module == "deep"
