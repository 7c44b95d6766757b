"""Which loss scales hold the gradients seen."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.analysis.gradients import gradient_steps
from ampdoctor.analysis.scale_range import ScaleRange, scale_range
from ampdoctor.trace.builder import RunBuilder


def _range(before: dict[int, int], scale: float = 1.0, **columns: Any) -> ScaleRange:
    run = RunBuilder().step()
    run.tensor(
        "head",
        "grad_output",
        slot="cast",
        cast_to="float16",
        exponents=before,
        loss_scale=scale,
        **columns,
    )
    return scale_range(gradient_steps(run.build()))


@pytest.mark.parametrize("scale", [1.0, 4.0, 65536.0])
def test_the_largest_scale_keeps_the_peak_a_binade_below_the_max(scale: float) -> None:
    scales = _range({-20: 10}, scale)
    peak = 2.0**-20 / scale
    assert scales.peak == peak
    assert 65504 / 4 < scales.largest * peak <= 65504 / 2
    assert scales.current == scale


def test_torchs_default_is_suggested_where_it_holds_the_gradients() -> None:
    assert _range({-30: 1000, -20: 10}).suggested == 65536.0


def test_where_the_default_overflows_the_largest_that_fits_is_suggested() -> None:
    scales = _range({3: 10})
    assert scales.suggested == scales.largest < 65536.0


def test_where_the_default_flushes_the_largest_that_fits_is_suggested() -> None:
    scales = _range({-50: 1000})
    assert scales.suggested == scales.largest > 65536.0


def test_what_is_left_at_a_scale_is_counted_before_a_cast() -> None:
    scales = _range({-30: 1000, -20: 10})
    assert scales.counted
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


def test_an_overflowed_gradient_was_larger_than_what_is_left_of_it() -> None:
    run = (
        RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents={15: 9}, posinf=1)
    )
    scales = scale_range(gradient_steps(run.build()))
    assert scales.peak == 2 * 65504
    assert scales.largest == 0.25


def test_a_gradient_that_is_gone_may_have_been_larger() -> None:
    run = RunBuilder().step(loss=1.0).tensor("a", "grad_output", dtype="float16", zeros=10)
    assert not scale_range(gradient_steps(run.build())).seen_whole
    assert _range({-20: 10}).seen_whole


def test_weight_gradients_divided_in_user_code_are_left_out() -> None:
    run = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents={-20: 9})
    run.tensor("a", "weight_grad", slot="weight", exponents={-10: 100}, shape=[10, 10])
    steps = gradient_steps(run.build())
    assert scale_range(steps).peak == 2.0**-10
    assert scale_range(steps, weights_scaled=False).peak == 2.0**-20
