"""Recommendations: the scale that fits, what twins have tried, and what each cure costs."""

from __future__ import annotations

import pytest

from ampdoctor.analysis.advice.choosing import Cure, Effect, Recommendation, Recommendations, recommend
from ampdoctor.analysis.advice.measured_fixes import with_measured
from ampdoctor.analysis.backward.gradient_range import gradient_range
from ampdoctor.engine import diagnose
from ampdoctor.finding import Grade
from ampdoctor.trace.builder import RunBuilder


def _flushing(scale: float | None = None, largest: int = -20, **info: object) -> RunBuilder:
    """A layer whose gradients lie at FP16's edge, half of them below it; the largest at 2**largest."""
    output = {-24: 400, -23: 350, -22: 250, largest: 1}
    weight = {-24: 30, -23: 20, -22: 10, -21: 1}
    builder = RunBuilder(**info).step(loss=2.0)
    builder.tensor("head", "activation", dtype="float16", exponents={0: 10})
    builder.tensor(
        "head", "grad_output", dtype="float16", exponents=output, zeros=500, loss_scale=scale, shape=[150, 10]
    )  # fmt: skip
    return builder.tensor(
        "head", "weight_grad", slot="weight", exponents=weight, zeros=40, loss_scale=scale, shape=[10, 10]
    )  # fmt: skip


def _by_cure(found: Recommendations) -> dict[Cure, Recommendation]:
    return {r.cure: r for r in found.ranked}


def test_the_static_scale_keeps_the_largest_gradient_a_binade_under_the_maximum() -> None:
    # 2^-20 times 2^34 is 2^14: one binade under 2^15, the largest power of two in FP16.
    found = recommend(_flushing().build())
    assert found.largest_scale == 2.0**34
    static = _by_cure(found)[Cure.STATIC_SCALE]
    assert static.scale == 2.0**34
    assert "init_scale=2.0**34, growth_interval=10**9" in static.code
    assert static.grade is Grade.ESTIMATED
    assert static.before is not None
    assert static.before.flushed is not None
    assert static.before.flushed > 0.1
    assert static.after is not None
    assert static.after.flushed == pytest.approx(0.0, abs=1e-3)


def test_a_scale_in_force_is_divided_out() -> None:
    assert recommend(_flushing(scale=16.0).build()).largest_scale == 2.0**38


def test_an_operation_inside_a_module_keeps_the_scale_down() -> None:
    builder = _flushing()
    builder.op("aten.mm", "head", direction="backward", absmax=2.0**-4)
    found = recommend(builder.build())
    assert found.largest_scale == 2.0**18


def test_operations_count_in_half_and_backward_only() -> None:
    builder = _flushing()
    builder.op("aten.mm", "head", absmax=2.0**-4)
    builder.op("aten.sum", "head", direction="backward", dtype_out="float32", absmax=2.0**-4)
    assert recommend(builder.build()).largest_scale == 2.0**34


def test_the_fp32_twin_sees_what_has_overflowed() -> None:
    builder = _flushing()
    builder.twin("fp32", "head", "grad_output", slot="out", absmax=2.0**-2)
    assert recommend(builder.build()).largest_scale == 2.0**16


def _tried(cosine: float = 0.71) -> RunBuilder:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000}
    builder.twin_step("run", "fp32", "bf16", "fp16@2^10", "fp16@2^16")
    builder.twin("run", "", "gradient", flushed=185, cosine=cosine, **base)
    builder.twin("fp32", "", "gradient", **base)
    builder.twin("bf16", "", "gradient", number_format="bf16", cosine=0.9999, **base)
    builder.twin(
        "fp16@2^10", "", "gradient", number_format="fp16", loss_scale=2.0**10, flushed=10, cosine=0.98, **base
    )  # fmt: skip
    return builder.twin(
        "fp16@2^16", "", "gradient", number_format="fp16", loss_scale=2.0**16, cosine=0.99995, **base
    )  # fmt: skip


def test_a_measured_cure_quotes_the_twin_before_and_after() -> None:
    best = recommend(_tried().build()).best
    assert best is not None
    assert (best.cure, best.scale, best.grade) == (Cure.DYNAMIC_SCALE, 2.0**16, Grade.MEASURED)
    assert best.expected == "Tried beside step 0: flushed 18.5 % → 0 %, cosine 0.71 → 0.99995."
    assert best.before == Effect(0.185, 0.71)
    assert best.after == Effect(0.0, 0.99995)
    assert best.fix.grade is Grade.MEASURED
    assert best.fix.expected == best.expected


def test_measured_cures_come_first() -> None:
    ranked = recommend(_tried().build()).ranked
    grades = [r.grade for r in ranked]
    assert grades == sorted(grades, key=lambda g: g is not Grade.MEASURED)
    assert [r.cure for r in ranked[:2]] == [Cure.DYNAMIC_SCALE, Cure.BF16]


def test_what_was_tried_and_did_not_help_is_left_out() -> None:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000}
    builder.twin("run", "", "gradient", flushed=185, cosine=0.71, **base)
    builder.twin("bf16", "", "gradient", number_format="bf16", cosine=0.5, **base)
    assert Cure.BF16 not in _by_cure(recommend(builder.build()))


@pytest.mark.parametrize(
    ("before", "bf16", "helps"),
    [
        (0.71, 0.72, False),
        (0.71, 0.86, True),
        (0.9985, 0.9988, False),
        (0.9985, 0.9995, True),
        (0.9995, 0.9993, True),
        (None, 0.9, True),
    ],
)
def test_a_cure_has_helped_where_it_takes_half_of_what_was_wrong_or_makes_it_sound(
    before: float | None, bf16: float, helps: bool
) -> None:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000}
    builder.twin("run", "", "gradient", flushed=185, cosine=before, **base)
    builder.twin("bf16", "", "gradient", number_format="bf16", cosine=bf16, **base)
    assert (Cure.BF16 in _by_cure(recommend(builder.build()))) is helps


@pytest.mark.parametrize(("flushed", "helps"), [(184, False), (93, False), (92, True)])
def test_without_a_direction_half_of_what_is_flushed_must_be_left_standing(flushed: int, helps: bool) -> None:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000, "cosine": None}
    builder.twin("run", "", "gradient", flushed=185, **base)
    builder.twin("bf16", "", "gradient", number_format="bf16", flushed=flushed, **base)
    assert (Cure.BF16 in _by_cure(recommend(builder.build()))) is helps


def test_a_scale_that_was_tried_in_vain_is_not_estimated_to_help() -> None:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000}
    builder.twin("run", "", "gradient", flushed=185, cosine=0.71, **base)
    for exponent in (16, 34):
        builder.twin(
            f"fp16@2^{exponent}", "", "gradient", number_format="fp16", loss_scale=2.0**exponent, flushed=180,
            cosine=0.72, **base,
        )  # fmt: skip
    assert not {Cure.DYNAMIC_SCALE, Cure.STATIC_SCALE} & set(_by_cure(recommend(builder.build())))


def test_a_sound_gradient_needs_no_cure() -> None:
    builder = _flushing()
    builder.twin("run", "", "gradient", flushed=0, cosine=0.99999)
    assert recommend(builder.build()).ranked == ()


def test_no_scale_holds_more_binades_than_fp16_has() -> None:
    builder = _tried()
    builder.twin("fp32", "wide", "grad_output", slot="out", absmax=2.0**10)
    builder.twin(
        "fp32", "head", "weight_grad", shape=[10, 10], exp_lowest=-41, exp_counts=[100], absmax=2.0**-41
    )  # fmt: skip
    found = recommend(builder.build())
    # From 2^10 down to 2^-41.
    assert found.binades_needed == 52
    assert found.note == "No loss scale holds this: 52 binades needed, 40 available."
    assert found.best is not None
    assert found.best.cure is Cure.BF16


def test_fp32_for_the_module_that_a_twin_has_tried() -> None:
    builder = _tried()
    builder.twin(
        "fp16@2^0+fp32:head", "", "gradient", number_format="fp16", fp32_modules=["head"], cosine=0.9995,
        numel=1000, nonzero=1000,
    )  # fmt: skip
    island = _by_cure(recommend(builder.build()))[Cure.FP32_MODULES]
    assert (island.modules, island.grade) == (("head",), Grade.MEASURED)
    assert island.title == "Run `head` in FP32"
    assert 'model.get_submodule("head")' in island.code


def test_what_bf16_costs_is_said() -> None:
    builder = _flushing(device="cuda: Some Card")
    builder.module("head", dtypes=["float16"])
    builder.op("aten._to_copy", integers_lost=1)
    builder.op("aten.add", dtype_out="float16", numel=100, absorbed=5)
    bf16 = _by_cure(recommend(builder.build()))[Cure.BF16]
    for part in ("lose small updates", "1 whole number,", "5.0 % of the sums", "is not recorded"):
        assert part in bf16.expected


def test_a_few_absorbed_terms_are_no_cost() -> None:
    builder = _flushing()
    builder.op("aten.add", dtype_out="float16", numel=1_000_000, absorbed=1)
    # The weights' update is none of BF16's: it stays in FP32.
    builder.op("aten.add_", dtype_out="float32", numel=100, absorbed=90)
    bf16 = _by_cure(recommend(builder.build()))[Cure.BF16]
    assert bf16.expected == "Gradients keep FP32's range unscaled."


def test_a_scale_at_which_a_twin_overflows_is_too_large() -> None:
    builder = _tried()
    base = {"number_format": "fp16", "loss_scale": 2.0**16}
    builder.twin("fp16@2^16", "", "loss", value=1.0, **base)
    builder.twin("fp16@2^16", "", "gradient", numel=10, nonzero=10, overflowed=1, nonfinite=1, **base)
    assert recommend(builder.build()).largest_scale == 2.0**14


def test_a_loss_that_overflows_says_nothing_of_the_scale() -> None:
    builder = _tried()
    base = {"number_format": "fp16", "loss_scale": 2.0**16}
    builder.twin("fp16@2^16", "", "loss", value=float("inf"), **base)
    builder.twin("fp16@2^16", "", "gradient", numel=10, nonzero=10, overflowed=1, nonfinite=1, **base)
    assert recommend(builder.build()).largest_scale == 2.0**34


@pytest.mark.parametrize("device", ["cuda: NVIDIA A100-SXM4-40GB", "cuda: NVIDIA H100 80GB HBM3", "cpu"])
def test_a_device_that_has_bf16_needs_no_word(device: str) -> None:
    bf16 = _by_cure(recommend(_flushing(device=device).build()))[Cure.BF16]
    assert bf16.expected == "Gradients keep FP32's range unscaled."


def test_a_scaler_grows_more_often_in_a_short_run() -> None:
    builder = _tried()
    for _ in range(999):
        builder.step(examined=False)
    best = recommend(builder.build()).best
    assert best is not None
    assert best.growth_interval == 100
    assert "growth_interval=100)" in best.code


def test_a_run_in_bf16_has_nothing_to_change_to() -> None:
    run = RunBuilder().step(loss=2.0)
    run.tensor("head", "activation", dtype="bfloat16", exponents={0: 10})
    run.tensor("head", "grad_output", dtype="bfloat16", exponents={-40: 90}, zeros=10)
    run.tensor("head", "weight_grad", slot="weight", exponents={-40: 90}, zeros=10, shape=[10, 10])
    run.twin_step("fp32").twin("run", "", "gradient", flushed=40, cosine=0.7)
    assert recommend(run.build()).ranked == ()
    assert diagnose(run.build()).findings == ()


def test_nothing_to_say_of_a_run_without_half() -> None:
    run = RunBuilder().step().build()
    assert recommend(run) == Recommendations(())
    assert gradient_range(run) is None


@pytest.mark.parametrize(("interval", "static"), [(2000, False), (10**9, True)])
def test_the_same_scale_held_fast_is_no_second_fix_unless_the_user_holds_one_fast(interval: int, static: bool) -> None:
    builder = _flushing()
    base = {"numel": 1000, "nonzero": 1000}
    builder.scaler("seen", scale=1.0, enabled=True, growth_factor=2.0, growth_interval=interval)
    builder.twin("run", "", "gradient", flushed=185, cosine=0.71, **base)
    builder.twin("fp16@2^34", "", "gradient", number_format="fp16", loss_scale=2.0**34, **base)
    run = builder.build()
    tried = {r.cure for r in recommend(run).ranked if r.grade is Grade.MEASURED}
    assert tried == {Cure.DYNAMIC_SCALE, Cure.STATIC_SCALE}
    titles = [fix.title for fix in with_measured(run, [])]
    assert ("Scale the loss with a static GradScaler" in titles) is static
    assert titles[0] == "Scale the loss with a dynamic GradScaler"
