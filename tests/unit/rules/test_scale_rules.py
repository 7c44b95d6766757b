"""The rules about the loss scale beyond their examples."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.finding import Confidence, Finding, Severity
from ampdoctor.rules.loss_scale_too_large import LossScaleTooLarge
from ampdoctor.rules.loss_scale_too_small import LossScaleTooSmall
from ampdoctor.rules.scale_collapse import ScaleCollapse
from ampdoctor.rules.scale_hunting import ScaleHunting
from ampdoctor.trace.builder import RunBuilder

FLUSHED = {-30: 5000, -28: 4900, -25: 100}


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def _too_small(scale: float, interval: int = 2000) -> list[Finding]:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(6):
        run.step(loss=2.3, loss_scale=scale)
        if step == 0:
            run.scaler("seen", enabled=True, scale=scale, growth_interval=interval, growth_factor=2.0)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=FLUSHED, loss_scale=scale)
    return list(LossScaleTooSmall().check(run.build()))


def test_a_scaler_on_its_way_up_from_torchs_default_is_no_fault() -> None:
    (finding,) = _too_small(65536.0)
    assert finding.severity is Severity.NOTE
    (pinned,) = _too_small(65536.0, interval=10**9)
    assert pinned.severity is Severity.ERROR


def test_a_growing_scale_is_told_with_its_way_to_go() -> None:
    (finding,) = _too_small(1.0)
    assert finding.severity is Severity.ERROR
    assert _evidence(finding)["steps_to_suggested_scale"] == 16 * 2000
    assert "steps_to_suggested_scale" not in _evidence(_too_small(4.0, interval=10**9)[0])


def test_a_factor_written_by_hand_may_be_kept_and_raised() -> None:
    run = RunBuilder(device="cpu")
    for _ in range(6):
        run.step(loss=2.3).call("backward", scaled="none", factor=128e-4, largest_factor=128.0)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=FLUSHED)
    (finding,) = LossScaleTooSmall().check(run.build())
    assert "a hand-written loss scale of 128" in finding.summary
    assert any("SCALE = " in fix.code for fix in finding.fixes)


def _by_hand(top: int, after: RunBuilder | None = None, **columns: Any) -> RunBuilder:
    run = after or RunBuilder(device="cpu")
    run.step(loss=2.3).call("backward", scaled="none", factor=2.0**20)
    run.tensor("head", "activation", dtype="float16", exponents={0: 9}, inputs_finite=True)
    return run.tensor("head", "grad_output", dtype="float16", exponents={top: 9}, **columns)


def test_weights_that_broke_between_examined_steps_point_back_to_gradients_at_the_limit() -> None:
    run = _by_hand(14)
    run.step(loss=math.nan).tensor("head", "weight", slot="weight", nan=9)
    (finding,) = LossScaleTooLarge().check(run.build())
    assert finding.confidence is Confidence.MEDIUM
    assert _evidence(finding)["weights_broken_step"] == 1
    far = _by_hand(3)
    far.step(loss=math.nan).tensor("head", "weight", slot="weight", nan=9)
    assert list(LossScaleTooLarge().check(far.build())) == []


def test_an_overflow_of_the_forward_pass_is_no_matter_of_the_scale() -> None:
    run = RunBuilder().step(loss=math.nan).call("backward", scaled="none", factor=1024.0)
    run.tensor("head", "activation", dtype="float16", posinf=9, inputs_finite=True)
    run.tensor("head", "grad_output", dtype="float16", nan=9)
    assert list(LossScaleTooLarge().check(run.build())) == []


def test_the_nearest_to_the_loss_is_told_where_only_weight_gradients_overflow() -> None:
    run = _by_hand(15)
    for module in ("body", "head"):
        run.tensor(module, "grad_output", dtype="float16", exponents={15: 9})
        run.tensor(module, "weight_grad", slot="weight", exponents={-6: 99}, posinf=1, shape=[10, 10])
    (finding,) = LossScaleTooLarge().check(run.build())
    assert finding.location.sites == ("head.weight (weight_grad)",)


def test_a_bias_that_overflows_counts_and_the_scale_advised_is_smaller() -> None:
    run = RunBuilder(device="cpu").step(loss=2.3)
    run.tensor("head", "activation", dtype="float16", exponents={0: 9}, inputs_finite=True)
    run.call("backward", scaled="none", factor=2.0**20)
    run.tensor("head", "grad_output", dtype="float16", exponents={3: 9})
    run.tensor("head", "weight_grad", slot="bias", dtype="float32", exponents={15: 8}, posinf=1)
    (finding,) = LossScaleTooLarge().check(run.build())
    assert finding.location.sites == ("head.bias (weight_grad)",)
    assert "SCALE = 2.0**18" in finding.fixes[-1].code
    assert "init_scale=2.0**18" in finding.fixes[0].code


@pytest.mark.parametrize("stuck", ["scaler0", "scaler1"])
def test_skips_are_counted_by_scaler(stuck: str) -> None:
    run = RunBuilder(device="cpu")
    for step in range(20):
        run.step(loss=2.3, loss_scale=2.0**24, found_inf=True)
        run.tensor("head", "activation", dtype="float16", exponents={0: 9}, inputs_finite=True)
        run.tensor("head", "grad_output", dtype="float16", exponents={15: 9}, posinf=1)
        for name in ("scaler0", "scaler1"):
            if step == 0:
                run.scaler("seen", enabled=True, scale=2.0**24, scaler=name)
            skips = (name == stuck) == (step < 12)
            run.scaler("skip" if skips else "step", scale=2.0**24, scaler=name)
            run.scaler("hold", scale=2.0**24, scale_after=2.0**24, scaler=name)
    assert len(list(LossScaleTooLarge().check(run.build()))) == 1
    # Half of the steps skipped by either of them is no scaler that is stuck.
    rule = LossScaleTooLarge({"skipped_share": 0.7})
    assert list(rule.check(run.build())) == []


def _scaler(*events: tuple[str, float], loss: float = 2.3, start: float = 65536.0) -> RunBuilder:
    run, scale = RunBuilder(), start
    for event, value in events:
        factor = {"growth": 2.0, "backoff": 0.5, "hold": 1.0}[event]
        run.step(loss=value, loss_scale=scale, found_inf=event == "backoff")
        if event == events[0][0] and len(run._rows["steps"]) == 1:
            run.scaler("seen", enabled=True, scale=scale, growth_interval=2, growth_factor=2.0)
        run.scaler("skip" if event == "backoff" else "step", scale=scale, found_inf=event == "backoff")
        run.scaler(event, scale=scale, scale_after=scale * factor)
        scale *= factor
    return run


def test_a_collapse_after_the_loss_ran_away_is_no_matter_of_precision() -> None:
    run = _scaler(*[("hold", 10.0**i) for i in range(6)], *[("backoff", math.nan)] * 20)
    (finding,) = ScaleCollapse().check(run.build())
    assert finding.confidence is Confidence.LOW
    assert "diverged" in finding.summary
    assert _evidence(finding)["loss_growth"] == pytest.approx(1e5)
    assert "lr" in finding.fixes[0].code


def test_a_collapse_is_told_from_its_first_step() -> None:
    run = _scaler(*[("hold", 2.0)] * 5, *[("backoff", math.nan)] * 20)
    (finding,) = ScaleCollapse().check(run.build())
    assert (finding.location.first_step, finding.location.last_step) == (5, 24)
    assert _evidence(finding)["skips_in_a_row"] == 20
    assert _evidence(finding)["nonfinite_losses"] == 20


@pytest.mark.parametrize(("dtype", "advised"), [("float16", True), ("bfloat16", False)])
def test_a_run_in_bf16_is_not_told_to_use_it(dtype: str, advised: bool) -> None:
    run = _scaler(*[("hold", 2.0)] * 5, *[("backoff", math.nan)] * 20)
    run.tensor("head", "activation", dtype=dtype, exponents={0: 9}, nan=1)
    (finding,) = ScaleCollapse().check(run.build())
    assert any("BF16" in fix.title for fix in finding.fixes) is advised


def test_the_calibration_just_before_is_no_part_of_a_collapse() -> None:
    run = _scaler(*[("hold", 2.0)] * 5, *[("backoff", 2.0)] * 4, *[("backoff", math.nan)] * 9)
    (finding,) = ScaleCollapse().check(run.build())
    assert (finding.location.first_step, _evidence(finding)["skips_in_a_row"]) == (9, 9)
    # Too few of them without a loss: what came before them does not make a collapse of it.
    few = _scaler(*[("hold", 2.0)] * 5, *[("backoff", 2.0)] * 14, *[("backoff", math.nan)] * 4)
    assert list(ScaleCollapse().check(few.build())) == []


def test_a_scale_that_collapses_before_the_loss_does_is_told_from_its_first_skip() -> None:
    run = _scaler(*[("hold", 2.0)] * 5, *[("backoff", 2.0)] * 20, *[("backoff", math.nan)] * 3)
    (finding,) = ScaleCollapse().check(run.build())
    assert (finding.location.first_step, _evidence(finding)["nonfinite_losses"]) == (5, 3)


def test_a_step_that_is_taken_ends_a_collapse() -> None:
    run = _scaler(*[("backoff", math.nan)] * 30, ("hold", 2.0))
    assert list(ScaleCollapse().check(run.build())) == []


@pytest.mark.parametrize(("back", "hunts"), [("backoff", True), ("set", False)])
def test_what_the_user_takes_back_is_no_hunting(back: str, hunts: bool) -> None:
    run = RunBuilder()
    for step in range(30):
        skips = back == "backoff" and step % 3 == 2
        run.step(loss=2.3, loss_scale=32.0, found_inf=skips)
        run.scaler("skip" if skips else "step", scale=32.0, found_inf=skips)
        if step % 3 == 1:
            run.scaler("growth", scale=32.0, scale_after=64.0)
        if step % 3 == 2:
            run.scaler(back, scale=64.0, scale_after=32.0)
    assert bool(list(ScaleHunting().check(run.build()))) is hunts


def test_a_bad_batch_now_and_then_is_no_hunting() -> None:
    events = ([("hold", 2.0)] * 7 + [("backoff", math.nan)]) * 8
    assert list(ScaleHunting().check(_scaler(*events).build())) == []
    rising = ([("growth", 2.0)] + [("hold", 2.0)] * 6 + [("backoff", math.nan)]) * 8
    assert list(ScaleHunting().check(_scaler(*rising).build())) == []


@pytest.mark.parametrize(("held", "severity"), [(1, Severity.ERROR), (8, Severity.WARNING)], ids=["a third", "a tenth"])
def test_hunting_is_as_bad_as_the_steps_it_costs(held: int, severity: Severity) -> None:
    events = ([("growth", 2.0)] + [("hold", 2.0)] * held + [("backoff", 2.0)]) * 8
    (finding,) = ScaleHunting().check(_scaler(*events).build())
    assert finding.severity is severity
    assert _evidence(finding)["rounds"] == 8
    assert _evidence(finding)["growth_interval"] == 2
