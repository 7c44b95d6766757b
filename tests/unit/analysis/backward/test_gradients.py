"""What FP16 took of each gradient, and above all which zeros it did not make."""

from __future__ import annotations

import math

import pytest

from ampdoctor.analysis.backward.gradients import GradientStep, fp16_gradients_missing, gradient_steps
from ampdoctor.trace.builder import RunBuilder

FAR = {-12: 5000, -11: 5000}
"""A gradient far above FP16's edge."""

EDGE = {-24: 300, -23: 20}
"""What is left of one that is all but flushed."""


def _only(run: RunBuilder) -> GradientStep:
    (step,) = gradient_steps(run.build())
    return step


def _lost(run: RunBuilder) -> dict[str, float]:
    return {f"{s.row.site} {s.row.role}": s.lost for s in _only(run).all_sites}


def test_before_a_cast_the_loss_is_counted() -> None:
    run = RunBuilder().step()
    run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents={-26: 3000, -20: 1})
    (site,) = _only(run).sites
    assert site.counted
    assert site.flushed == pytest.approx(3000 / 3001)
    assert site.lost == pytest.approx(3000 / (3000 + 4**6))


def test_in_fp16_it_is_estimated() -> None:
    run = RunBuilder().step().tensor("head", "grad_output", dtype="float16", exponents=EDGE, zeros=9680)
    (site,) = _only(run).sites
    assert not site.counted
    assert 0.05 < site.lost < 0.2
    assert 0.5 < site.flushed < 0.8


@pytest.mark.parametrize("zeros", [0, 9000, 10**6])
def test_zeros_beside_a_gradient_far_above_the_edge_are_structural(zeros: int) -> None:
    run = RunBuilder().step().tensor("head", "grad_output", dtype="float16", exponents=FAR, zeros=zeros)
    assert _lost(run) == {"head.out grad_output": 0.0}


def test_nothing_but_zeros_after_a_gradient_far_above_the_edge_is_structural() -> None:
    run = RunBuilder().step().tensor("b", "grad_output", dtype="float16", exponents=FAR)
    run.tensor("a", "grad_output", dtype="float16", zeros=10000)
    run.tensor("a", "weight_grad", slot="weight", zeros=100, shape=[10, 10])
    assert _lost(run)["a.out grad_output"] == 0.0
    assert _lost(run)["a.weight weight_grad"] == 0.0


def test_nothing_but_zeros_after_one_at_the_edge_was_flushed() -> None:
    run = RunBuilder().step().tensor("b", "grad_output", dtype="float16", exponents=EDGE, zeros=9680)
    run.tensor("a", "grad_output", dtype="float16", zeros=10000)
    run.tensor("a", "weight_grad", slot="weight", zeros=100, shape=[10, 10])
    assert _lost(run)["a.out grad_output"] == 1.0
    assert _lost(run)["a.weight weight_grad"] == 1.0


def test_a_zero_gradient_above_the_cast_is_nobodys_loss() -> None:
    run = RunBuilder().step().tensor("head", "grad_output", slot="cast", cast_to="float16", zeros=100)
    run.tensor("head", "grad_output", dtype="float16", zeros=100)
    assert set(_lost(run).values()) == {0.0}


def test_a_loss_that_sends_back_zeros_only_was_flushed_before_the_first_module() -> None:
    run = RunBuilder().step(loss=0.5).tensor("head", "grad_output", dtype="float16", zeros=100)
    assert _lost(run) == {"head.out grad_output": 1.0}
    done = RunBuilder().step(loss=0.0).tensor("head", "grad_output", dtype="float16", zeros=100)
    assert _lost(done) == {"head.out grad_output": 0.0}


def test_micro_batches_are_merged() -> None:
    run = RunBuilder().step()
    for _ in range(2):
        run.tensor("head", "grad_output", dtype="float16", exponents=FAR).call("backward")
    (site,) = _only(run).sites
    assert site.histogram.nonzero == 20000


def test_a_bias_may_cancel_to_nothing_and_is_left_out() -> None:
    run = RunBuilder().step().tensor("k", "grad_output", dtype="float16", exponents=FAR)
    run.tensor("k", "weight_grad", slot="bias", zeros=10, shape=[10])
    assert [s.row.role for s in _only(run).all_sites] == ["grad_output"]


def test_an_fp32_gradient_that_fp16_could_not_hold_was_not_made_in_fp16() -> None:
    run = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents=FAR)
    run.tensor("a", "weight_grad", slot="weight", exponents={-30: 100}, shape=[10, 10])
    run.tensor("island", "weight_grad", slot="weight", exponents={-20: 100}, shape=[10, 10])
    assert _only(run).weights == ()


def test_half_weights_without_any_output_are_judged_by_their_gradients() -> None:
    run = RunBuilder().step()
    run.tensor("", "weight_grad", slot="w", dtype="float16", exponents=EDGE, zeros=80, shape=[20, 20])
    run.tensor("", "weight_grad", slot="b", dtype="float16", exponents=EDGE, shape=[320])
    step = _only(run)
    assert step.sites == ()
    (weight,) = step.weights
    assert (weight.name, weight.histogram.numel) == ("w", 400)


def test_the_scale_is_the_scalers_or_the_one_written_by_hand() -> None:
    scaled = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents=FAR, loss_scale=512.0)
    assert _only(scaled).scale == 512.0
    by_hand = RunBuilder().step().call("backward", scaled="none", factor=64.0)
    assert _only(by_hand.tensor("a", "grad_output", dtype="float16", exponents=FAR)).scale == 64.0


@pytest.mark.parametrize("columns", [{"loss": math.nan}, {"found_inf": True}], ids=["loss", "found_inf"])
def test_a_broken_step_is_not_finite(columns: dict[str, object]) -> None:
    run = RunBuilder().step(**columns).tensor("a", "grad_output", dtype="float16", exponents=FAR)
    assert not _only(run).finite


def test_a_nonfinite_gradient_is_not_finite() -> None:
    run = RunBuilder().step().tensor("a", "grad_output", dtype="float16", exponents=FAR, posinf=1)
    assert not _only(run).finite


def test_bf16_and_fp32_gradients_are_none_of_it() -> None:
    run = RunBuilder().step()
    for dtype in ("bfloat16", "float32"):
        run.tensor("a", "grad_output", dtype=dtype, exponents={-40: 100})
    assert gradient_steps(run.build()) == ()


def test_fp16_activations_without_gradients_cannot_be_judged() -> None:
    run = RunBuilder().step().tensor("a", "activation", dtype="float16", exponents=FAR)
    assert fp16_gradients_missing(run.build())
    assert not fp16_gradients_missing(run.tensor("a", "grad_output", dtype="float16", exponents=FAR).build())
    frozen = RunBuilder().step().tensor("a", "activation", dtype="float16", grad_enabled=False)
    assert not fp16_gradients_missing(frozen.build())
