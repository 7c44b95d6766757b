"""gradient-underflow beyond its examples: what it advises, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.finding import Confidence, Finding, Grade, Severity
from ampdoctor.rules.gradient_underflow import GradientUnderflow
from ampdoctor.trace.builder import RunBuilder

FLUSHED = {-30: 5000, -28: 4900, -25: 100}
FAR = {-12: 5000, -11: 5000}


def _run(
    before: dict[int, int] | None = None,
    kept: dict[int, int] | None = None,
    *,
    scale: float | None = None,
    factor: float = 1.0,
    steps: int = 6,
    **info: Any,
) -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100", **info)
    for step in range(steps):
        run.step(loss=2.3, loss_scale=scale).call("backward", scaled="none", factor=factor)
        if scale is not None and step == 0:
            run.scaler("seen", enabled=True, scale=scale, growth_interval=2000, growth_factor=2.0)
        if before is not None:
            run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=before, loss_scale=scale)
        if kept is not None:
            zeros = 10000 - sum(kept.values())
            run.tensor("body", "grad_output", dtype="float16", exponents=kept, zeros=zeros, loss_scale=scale)
    return run


def _check(run: RunBuilder) -> list[Finding]:
    return list(GradientUnderflow().check(run.build()))


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def test_a_loss_at_the_cast_is_measured_and_told_first() -> None:
    (finding,) = _check(_run(FLUSHED, {-24: 100}))
    assert (finding.severity, finding.grade, finding.confidence) == (Severity.ERROR, Grade.MEASURED, Confidence.HIGH)
    assert "99.0 % of the gradient that enters `head` is flushed to zero" in finding.summary
    assert _evidence(finding)["flushed_share"] == 0.99
    assert _evidence(finding)["steps_affected"] == 6


def test_the_first_cure_is_a_scaler_and_the_second_bf16() -> None:
    (finding,) = _check(_run(FLUSHED, {-24: 100}))
    assert "GradScaler" in finding.fixes[0].code
    assert "bfloat16" in finding.fixes[1].code
    assert _evidence(finding)["lost_energy_at_suggested_scale"] < 0.01


def test_a_disabled_scaler_is_to_be_enabled() -> None:
    run = _run(FLUSHED, {-24: 100})
    (finding,) = _check(run.scaler("seen", enabled=False))
    assert "disabled" in finding.summary
    assert finding.fixes[0].code == 'scaler = torch.amp.GradScaler("cuda", enabled=True)'


def test_a_loss_that_is_averaged_away_is_told() -> None:
    (finding,) = _check(_run(FLUSHED, {-24: 100}, factor=1 / 64))
    assert _evidence(finding)["loss_factor"] == 1 / 64


def test_with_room_above_a_scaled_run_is_another_rules_case() -> None:
    assert _check(_run(FLUSHED, {-24: 100}, scale=4.0)) == []


def test_a_range_that_no_scale_holds() -> None:
    run = _run(None, {-24: 500}, scale=1024.0)
    for step in run._rows["steps"]:
        run._step = step.step
        run.tensor("head", "grad_output", dtype="float16", exponents={15: 100}, loss_scale=1024.0)
    (finding,) = _check(run)
    # 40 binades are what FP16 has: it is this scale that has no room.
    assert "at a loss scale of 1024, which `head` keeps from rising" in finding.summary
    assert _evidence(finding)["binades_needed"] == 40
    assert 'get_submodule("body")' in finding.fixes[1].code
    assert not any("GradScaler(" in fix.code for fix in finding.fixes)
    assert "bfloat16" in finding.fixes[0].code


def test_more_binades_than_fp16_has_are_lost_at_every_scale() -> None:
    run = _run({-40: 5000, -39: 5000}, {-24: 500}, scale=1024.0)
    for step in run._rows["steps"]:
        run._step = step.step
        run.tensor("top", "grad_output", dtype="float16", exponents={15: 100}, loss_scale=1024.0)
    (finding,) = _check(run)
    assert "at every loss scale" in finding.summary
    assert _evidence(finding)["binades_needed"] > 40


def test_of_gradients_that_are_gone_nothing_is_promised() -> None:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(4):
        run.step(loss=2.3).call("backward", scaled="none", factor=1.0)
        for module in ("head", "body"):
            run.tensor(module, "grad_output", dtype="float16", zeros=1000)
    (finding,) = _check(run)
    assert _evidence(finding)["gradients_gone"] == 2
    assert not {"largest_scale", "lost_energy_at_suggested_scale"} & set(_evidence(finding))
    assert "bfloat16" in finding.fixes[0].code
    assert "cannot be known" in finding.fixes[1].expected


def test_a_tail_without_energy_is_a_note_with_nothing_to_do() -> None:
    spread = {-24: 2000, -23: 1500, -22: 1000, -10: 300}
    (finding,) = _check(_run(None, spread))
    assert finding.severity is Severity.NOTE
    assert finding.fixes == ()


def test_an_early_step_of_a_run_that_goes_on_is_not_judged() -> None:
    assert _check(_run(FLUSHED, {-24: 100}, steps=2, status="running")) == []
    assert len(_check(_run(FLUSHED, {-24: 100}, steps=2))) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_other_formats_do_not_flush(dtype: str) -> None:
    run = RunBuilder()
    for _ in range(4):
        run.step(loss=2.3).tensor("head", "grad_output", dtype=dtype, exponents={-40: 100}, zeros=900)
    assert _check(run) == []


def test_a_run_whose_gradients_were_not_recorded_is_skipped() -> None:
    run = RunBuilder().step(loss=2.3).tensor("head", "activation", dtype="float16", exponents={0: 9})
    assert GradientUnderflow().lacks(run.build()) == ["gradients of FP16 activations"]
