"""What-if: numbers that can be worked out by hand, and what must hold for any gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.analysis.advice.whatif import measured_points, recorded_step, what_if
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import BF16, E4M3FN, FP16
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.formats import NumberFormat

FEATURES = [10, 10]


def _linear(
    builder: RunBuilder,
    module: str,
    output: dict[int, int],
    weight: dict[int, int],
    zeros: int = 0,
    scale: float = 1024.0,
) -> RunBuilder:
    """Add a layer: the gradient of its output, then that of its weight."""
    count = sum(output.values())
    builder.tensor(module, "grad_output", dtype="float16", exponents=output, loss_scale=scale, shape=[count // 10, 10])
    return builder.tensor(
        module, "weight_grad", slot="weight", exponents=weight, zeros=zeros, loss_scale=scale, shape=FEATURES
    )  # fmt: skip


def _healthy() -> RunBuilder:
    return _linear(RunBuilder().step(), "head", {-2: 1000}, {-6: 50, -10: 50})


def test_bins_move_with_the_scale() -> None:
    recorded = recorded_step(_healthy().build())
    # At 2^-6 of the run's scale everything is still far above FP16's edge of 2^-25.
    assert what_if(recorded, FP16, 2.0**4).total.estimated == 0.0
    # 2^-17 of it takes the bin at 2^-10 to 2^-27 and leaves the one at 2^-6 at 2^-23.
    answer = what_if(recorded, FP16, 2.0**-7)
    assert answer.total.estimated == 0.5
    assert answer.weights[0].subnormal == 0.5
    assert answer.weights[0].overflowed == 0.0


def test_by_default_it_is_the_run_as_it_was() -> None:
    answer = what_if(recorded_step(_healthy().build()))
    assert (answer.number_format, answer.scale, answer.own_scale) == (FP16, 1024.0, 1024.0)
    assert answer.total.estimated == 0.0
    assert answer.total.measured is None


def test_what_is_flushed_upstream_is_gone_below() -> None:
    # The gradient of the output lies six binades under that of the weight, and dies first.
    run = _linear(RunBuilder().step(), "head", {-16: 1000}, {-10: 100}).build()
    recorded = recorded_step(run)
    assert what_if(recorded, FP16, 1.0).total.estimated == 1.0
    assert what_if(recorded, FP16, 16.0).total.estimated == 0.0


def test_a_residual_connection_does_not_die_with_its_branch() -> None:
    builder = RunBuilder().step()
    _linear(builder, "head", {-6: 1000}, {-4: 100})
    _linear(builder, "branch", {-18: 1000}, {-12: 100})
    _linear(builder, "trunk", {-6: 1000}, {-4: 100})
    answer = what_if(recorded_step(builder.build()), FP16, 2.0**2)
    assert {w.site: w.flushed.estimated for w in answer.weights} == {
        "head.weight": 0.0, "branch.weight": 1.0, "trunk.weight": 0.0,
    }  # fmt: skip


def test_bf16_flushes_nothing_and_fp8_a_lot() -> None:
    recorded = recorded_step(_healthy().build())
    assert what_if(recorded, BF16).total.estimated == 0.0
    # E4M3fn flushes below 2^-10: the bin that starts there survives, and dies one binade further down.
    assert what_if(recorded, E4M3FN).total.estimated == 0.0
    assert what_if(recorded, E4M3FN, 512.0).total.estimated == 0.5


def test_overflow_is_told() -> None:
    recorded = recorded_step(_healthy().build())
    assert not what_if(recorded, FP16, 2.0**27).overflows
    answer = what_if(recorded, FP16, 2.0**28)
    assert answer.overflows
    assert answer.outputs[0].overflowed == 1.0


def test_structural_zeros_stay_out() -> None:
    run = _linear(RunBuilder().step(), "head", {-2: 1000}, {-6: 100}, zeros=900).build()
    answer = what_if(recorded_step(run))
    assert answer.total.estimated == 0.0
    assert answer.total.high is not None
    assert answer.total.high <= 0.01
    assert answer.weights[0].elements == 100.0


def test_what_is_gone_is_flushed_at_this_scale_and_unknown_above() -> None:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={-30: 1000})
    run.tensor("head", "grad_output", dtype="float16", zeros=1000, shape=[100, 10])
    run.tensor("head", "weight_grad", slot="weight", zeros=100, shape=FEATURES)
    recorded = recorded_step(run.build())
    assert not what_if(recorded).gone
    assert what_if(recorded).total.estimated == 1.0
    above = what_if(recorded, FP16, 1024.0).total
    assert (above.estimated, above.low, above.high) == (None, 0.0, 1.0)


def _twinned() -> RunBuilder:
    builder = _healthy()
    for name, scale, flushed in (("run", 1024.0, 0), ("fp16@2^-7", 2.0**-7, 47)):
        fmt = None if name == "run" else "fp16"
        builder.twin(name, "head", "weight_grad", number_format=fmt, loss_scale=scale, flushed=flushed)
    return builder


def test_the_twin_stands_beside_the_estimate() -> None:
    recorded = recorded_step(_twinned().build())
    answer = what_if(recorded, FP16, 2.0**-7)
    assert (answer.total.estimated, answer.total.measured) == (0.5, 0.47)
    assert answer.weights[0].flushed.measured == 0.47
    assert what_if(recorded, FP16, 2.0**-6).total.measured is None
    assert what_if(recorded, BF16, 2.0**-7).total.measured is None
    assert measured_points(recorded, FP16) == {10.0: 0.0, -7.0: 0.47}


def test_the_bins_of_the_fp32_twin_are_taken_where_there_are_any() -> None:
    builder = _healthy()
    builder.twin("fp32", "head", "weight_grad", number_format="fp32", exp_lowest=-16, exp_counts=[25, 75])
    answer = what_if(recorded_step(builder.build()), FP16, 2.0**-9)
    # 2^-16 times 2^-9 is the edge: a binade less, and that bin is gone.
    assert answer.total.estimated == 0.0
    assert what_if(recorded_step(builder.build()), FP16, 2.0**-10).total.estimated == 0.25


def test_the_step_with_a_twin_comes_first() -> None:
    builder = _twinned()
    builder.step()
    _linear(builder, "head", {-2: 1000}, {-6: 100})
    run = builder.build()
    assert recorded_step(run).step == 0
    assert recorded_step(run, 1).step == 1


def test_questions_without_an_answer() -> None:
    run = _healthy().build()
    with pytest.raises(AmpDoctorError, match="step 7 has no recorded gradients"):
        recorded_step(run, 7)
    with pytest.raises(AmpDoctorError, match="no gradients were recorded"):
        recorded_step(RunBuilder().step().build())
    with pytest.raises(AmpDoctorError, match="no weight gradient is called 'nope'"):
        what_if(recorded_step(run), sites="nope")


BINS = st.dictionaries(st.integers(-24, 8), st.integers(1, 500), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(output=BINS, weight=BINS, zeros=st.integers(0, 500))
def test_bounds_hold_the_estimate_and_less_is_flushed_at_a_larger_scale(
    output: dict[int, int], weight: dict[int, int], zeros: int
) -> None:
    run = _linear(RunBuilder().step(), "head", output, weight, zeros, scale=1.0).build()
    recorded = recorded_step(run)
    before = 1.0
    for exponent in range(-20, 21):
        total = what_if(recorded, FP16, 2.0**exponent).total
        assert total.low is not None
        assert total.estimated is not None
        assert total.high is not None
        assert 0.0 <= total.low <= total.estimated + 1e-9
        assert total.estimated <= total.high + 1e-9 <= 1.0 + 2e-9
        assert total.estimated <= before + 1e-6
        before = total.estimated


def test_between_powers_of_two_it_is_the_estimate_of_the_one_below_with_bounds_for_both() -> None:
    recorded = recorded_step(_healthy().build())
    below, above = (what_if(recorded, FP16, scale) for scale in (2.0**-7, 2.0**-6))
    between = what_if(recorded, FP16, 1.5 * 2.0**-7)
    assert (below.estimated_at, between.scale, between.estimated_at) == (
        2.0**-7, 1.5 * 2.0**-7, 2.0**-7,
    )  # fmt: skip
    assert between.total.estimated == below.total.estimated
    assert between.total.low == min(below.total.low or 0.0, above.total.low or 0.0)
    assert between.total.high == below.total.high


def test_a_format_that_reaches_less_far_flushes_more_at_the_same_scale() -> None:
    # E4M3 flushes at 2^-10 and below, FP16 at 2^-25: what lies at 2^-14 was held by the run and is not any more.
    run = _linear(RunBuilder().step(), "head", {-2: 1000}, {-6: 50, -14: 50}).build()
    recorded = recorded_step(run)
    assert what_if(recorded, FP16).total.estimated == 0.0
    assert what_if(recorded, E4M3FN).total.estimated == 0.5
    assert what_if(recorded, BF16).total.estimated == 0.0


def test_an_fp32_twin_knows_what_the_run_has_flushed() -> None:
    builder = _linear(RunBuilder().step(), "head", {-2: 1000}, {-22: 40}, zeros=60)
    # Unscaled, as the run scales by 2^10: half of it lies at 2^-32, a tenth at 2^-38.
    builder.twin(
        "fp32", "head", "weight_grad", numel=100, nonzero=100, exp_lowest=-38,
        exp_counts=[10, 0, 0, 0, 0, 0, 50, 40], absmax=2.0**-30,
    )  # fmt: skip
    recorded = recorded_step(builder.build())
    now = what_if(recorded).total
    assert (now.estimated, now.low) == (0.6, 0.59)
    assert what_if(recorded, FP16, 2.0**11).total.estimated == 0.1
    assert what_if(recorded, FP16, 2.0**17).total.estimated == 0.0


def _by_hand(*calls: str, scale: float = 1024.0) -> RunBuilder:
    builder = RunBuilder().step()
    for call in calls:
        builder.call(call)
    builder.tensor(
        "head", "grad_output", dtype="float16", exponents={-2: 1000}, loss_scale=scale, shape=[100, 10]
    )  # fmt: skip
    return builder.tensor(
        "head", "weight_grad", slot="weight", exponents={-10: 100}, loss_scale=scale, shape=[10, 10]
    )  # fmt: skip


def test_a_scale_that_code_divided_by_is_put_back() -> None:
    recorded = recorded_step(_by_hand("backward", "optimizer_step").build())
    assert recorded.backward.divided
    # The product was 2^0 with the scale in it, and is 2^-20 at 2^-10. Undivided it would be 2^-30.
    assert what_if(recorded, FP16, 2.0**-10).total.estimated == 0.0


@pytest.mark.parametrize("calls", [("backward",), ("backward", "unscale", "optimizer_step")])
def test_a_scaler_divides_after_the_recording(calls: tuple[str, ...]) -> None:
    recorded = recorded_step(_by_hand(*calls).build())
    assert not recorded.backward.divided
    assert what_if(recorded, FP16, 2.0**-10).total.estimated == 1.0


def test_a_branch_that_starts_at_zero_takes_nothing_below_it_along() -> None:
    builder = RunBuilder().step()
    _linear(builder, "head", {-2: 1000}, {-2: 100})
    builder.tensor("branch", "grad_output", dtype="float16", zeros=1000, loss_scale=1024.0, shape=[100, 10])
    builder.tensor("branch", "weight_grad", slot="weight", zeros=100, loss_scale=1024.0, shape=FEATURES)
    _linear(builder, "stem", {-4: 1000}, {-4: 100})
    answer = what_if(recorded_step(builder.build()), FP16, 2.0**2)
    shares = {w.site: (w.elements, w.flushed.estimated) for w in answer.weights}
    assert shares == {"head.weight": (100, 0.0), "branch.weight": (0, None), "stem.weight": (100, 0.0)}  # fmt: skip


def test_near_the_edge_what_is_zero_may_have_been_flushed() -> None:
    builder = RunBuilder().step()
    _linear(builder, "head", {-20: 1000}, {-16: 100})
    builder.tensor("stem", "grad_output", dtype="float16", zeros=1000, loss_scale=1024.0, shape=[100, 10])
    builder.tensor("stem", "weight_grad", slot="weight", zeros=100, loss_scale=1024.0, shape=FEATURES)  # fmt: skip
    answer = what_if(recorded_step(builder.build()), FP16)
    assert {w.site: w.flushed.estimated for w in answer.weights} == {
        "head.weight": 0.0, "stem.weight": 1.0,
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    output=BINS, weight=BINS, zeros=st.integers(0, 500), fmt=st.sampled_from([FP16, BF16, E4M3FN]),
    exponent=st.integers(-30, 30), half=st.booleans(), kind=st.sampled_from(["Linear", "LayerNorm"]),
)  # fmt: skip
def test_no_element_is_flushed_and_subnormal_or_overflowed_at_once(
    output: dict[int, int], weight: dict[int, int], zeros: int, fmt: NumberFormat, exponent: int, half: bool, kind: str
) -> None:
    run = RunBuilder().step().module("head", type=kind)
    for module in ("head", "stem"):
        shape = [sum(output.values()), 1]
        run.tensor(module, "grad_output", dtype="float16" if half else "float32", exponents=output, shape=shape)
        run.tensor(module, "weight_grad", slot="weight", exponents=weight, zeros=zeros)
    answer = what_if(recorded_step(run.build()), fmt, 2.0**exponent)
    for site in (*answer.weights, *answer.outputs):
        assert site.flushed.estimated is not None
        assert site.subnormal is not None
        assert site.overflowed is not None
        shares = (site.flushed.estimated, site.subnormal, site.overflowed)
        assert all(share >= 0.0 for share in shares)
        assert sum(shares) <= 1.0 + 1e-9


def test_a_gradient_that_shrinks_upstream_is_subnormal_by_what_is_left_of_it() -> None:
    # Half of the output's gradient is flushed, and with it all of its energy but what the other half holds; none of
    # what the weight's gradient then loses to zero is counted as subnormal as well.
    run = _linear(RunBuilder().step(), "head", {-16: 999, -9: 1}, {-13: 50, -9: 50}, scale=1.0).build()
    answer = what_if(recorded_step(run), FP16, 2.0**-14)
    (site,) = answer.weights
    assert site.flushed.estimated is not None
    assert site.subnormal is not None
    assert site.flushed.estimated > 0.5
    assert site.flushed.estimated + site.subnormal == pytest.approx(1.0)
