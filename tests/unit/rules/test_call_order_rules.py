"""The rules about steps, scalers and schedules beyond their examples: numbers, severities and edges."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.finding import Confidence, Finding, Severity
from ampdoctor.rules.gradient_penalty_scaled import GradientPenaltyScaled
from ampdoctor.rules.optimizer_stepped_twice import OptimizerSteppedTwice
from ampdoctor.rules.scaler_bypassed import ScalerBypassed
from ampdoctor.rules.scaler_state_not_restored import ScalerStateNotRestored
from ampdoctor.rules.scaler_update_mid_iteration import ScalerUpdateMidIteration
from ampdoctor.rules.scheduler_step_on_skipped import SchedulerStepOnSkipped
from ampdoctor.rules.stale_inf_grads import StaleInfGrads
from ampdoctor.trace.builder import RunBuilder


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def _bypass(run: RunBuilder, *, resized: float | None = 1.0, scale: float = 512.0) -> RunBuilder:
    run.step(loss=1.0, loss_scale=scale).call("zero_grad", target="optimizer0")
    run.call("backward", scaled="all", optimizers=["optimizer0"])
    return run.call("optimizer_step", target="optimizer0", resized=resized, file="t.py", line=7)


def test_a_bypass_is_told_with_its_scale_share_and_line() -> None:
    run = _bypass(RunBuilder().optimizer("SGD"))
    run.step(loss=1.0).call("backward", scaled="none", optimizers=["optimizer0"])
    (finding,) = ScalerBypassed().check(run.call("optimizer_step", target="optimizer0").build())
    assert _evidence(finding) == {"loss_scale": 512.0, "steps_share": 0.5, "size_ratio": 1.0}
    assert finding.location.source == "t.py:7"
    assert finding.confidence is Confidence.HIGH
    assert "SGD" in finding.summary


def test_a_bypass_whose_sizes_are_unknown_is_less_sure() -> None:
    (finding,) = ScalerBypassed().check(_bypass(RunBuilder(), resized=None).build())
    assert finding.confidence is Confidence.MEDIUM


def test_a_scale_of_one_is_no_scale() -> None:
    assert list(ScalerBypassed().check(_bypass(RunBuilder(), scale=1.0).build())) == []


def test_one_division_by_hand_tells_for_all_steps() -> None:
    run = _bypass(_bypass(RunBuilder()), resized=1 / 512)
    assert list(ScalerBypassed().check(run.build())) == []


def test_a_second_step_is_no_bypass() -> None:
    run = RunBuilder()
    for _ in range(2):
        _bypass(run).call("scaler_step", target="optimizer0")
        run.scaler("skip", optimizer="optimizer0", scale=512.0)
    assert list(ScalerBypassed().check(run.build())) == []
    (finding,) = OptimizerSteppedTwice().check(run.build())
    assert finding.location.first_step == 0
    assert _evidence(finding)["stepped_twice"] == 2


def test_skips_that_the_second_step_applies_are_counted() -> None:
    run = RunBuilder()
    for event in ("step", "skip", "skip"):
        run.step(loss=1.0).call("backward", scaled="all", optimizers=["optimizer0"])
        run.call("scaler_step", target="optimizer0")
        run.scaler(event, optimizer="optimizer0", scale=512.0)
        run.call("optimizer_step", target="optimizer0")
    (finding,) = OptimizerSteppedTwice().check(run.build())
    assert _evidence(finding)["skips_applied"] == 2


@pytest.mark.parametrize(("total", "severity"), [(10, Severity.WARNING), (100, Severity.WARNING), (200, Severity.NOTE)])
def test_how_much_of_a_schedule_is_consumed_decides(total: int, severity: Severity) -> None:
    run = RunBuilder()
    for step in range(20):
        skip = step < 8
        run.step(loss=1.0).call("scaler_step", target="optimizer0")
        run.scaler("skip" if skip else "step", optimizer="optimizer0", scale=2.0)
        rates = {"lr_before": step / total, "lr_after": (step + 1) / total, "base_lr": 1.0}
        run.call("scheduler_step", target="optimizer0", **rates)
    (finding,) = SchedulerStepOnSkipped().check(run.build())
    assert finding.severity is severity
    assert _evidence(finding)["steps_wasted"] == 8
    assert _evidence(finding)["wasted_share"] == 0.4


def test_a_schedule_whose_rates_are_unknown_is_a_note() -> None:
    run = RunBuilder()
    for _ in range(3):
        run.step(loss=1.0).call("scaler_step", target="optimizer0")
        run.scaler("skip", optimizer="optimizer0", scale=2.0)
        run.call("scheduler_step", target="optimizer0")
    (finding,) = SchedulerStepOnSkipped().check(run.build())
    assert finding.severity is Severity.NOTE


def test_another_optimizers_skips_are_no_matter() -> None:
    run = RunBuilder()
    for _ in range(3):
        run.step(loss=1.0).call("scaler_step", target="optimizer0")
        run.scaler("skip", optimizer="optimizer0", scale=2.0)
        run.call("scheduler_step", target="optimizer1")
    assert list(SchedulerStepOnSkipped().check(run.build())) == []


@pytest.mark.parametrize(("example", "severity"), [(0, Severity.ERROR), (2, Severity.WARNING)])
def test_a_scale_that_has_not_moved_yet_is_a_warning(example: int, severity: Severity) -> None:
    run = ScalerUpdateMidIteration.SICK[example].build().build()
    (finding,) = ScalerUpdateMidIteration().check(run)
    assert finding.severity is severity
    assert finding.location.source == "train.py:41"


def test_a_resume_is_told_with_both_scales() -> None:
    (finding,) = ScalerStateNotRestored().check(ScalerStateNotRestored.SICK[1].build().build())
    assert _evidence(finding) == {
        "skips_after_resume": 8,
        "scale_after_resume": 65536.0,
        "scale_before_resume": 256.0,
        "restored_parameters": 4,
    }
    assert finding.location.source == "train.py:20"


def test_stale_gradients_are_told_from_the_overflow_on() -> None:
    (finding,) = StaleInfGrads().check(StaleInfGrads.SICK[0].build().build())
    assert finding.location.first_step == 3
    assert _evidence(finding)["stale_skips"] == 11
    assert _evidence(finding)["finite_losses"] == 11


def test_a_penalty_is_told_with_its_true_norm_and_the_line_that_made_it() -> None:
    (finding,) = GradientPenaltyScaled().check(GradientPenaltyScaled.SICK[0].build().build())
    assert finding.location.source == "train.py:30"
    assert _evidence(finding)["scaled_norm"] == 8e5
    assert "12.2" in next(e.text for e in finding.evidence if e.name == "scaled_norm")
