"""What the rules about gradients and overflows say once twins have measured, beyond their examples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.analysis.advice import measured_fixes
from ampdoctor.analysis.advice.choosing import Cure, Recommendation, Recommendations
from ampdoctor.engine import diagnose
from ampdoctor.finding import Confidence, Finding, Grade, Severity
from ampdoctor.rules.activation_overflow import ActivationOverflow
from ampdoctor.rules.gradient_underflow import GradientUnderflow
from ampdoctor.rules.loss_scale_too_large import LossScaleTooLarge
from ampdoctor.rules.loss_scale_too_small import LossScaleTooSmall
from ampdoctor.rules.norm_overflow import NormOverflow
from ampdoctor.rules.scale_collapse import ScaleCollapse
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.rules.base import Rule

FAR = {-12: 5000, -11: 5000}
FLUSHED = {-30: 5000, -28: 4900, -25: 100}


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def _run(before: dict[int, int], *twins: tuple[int, dict[str, Any]], steps: int = 6, **info: Any) -> RunBuilder:
    """A run without a scaler whose gradient enters FP16 as `before`, with what twins measured on some steps."""
    run = RunBuilder(device="cpu", **info)
    for step in range(steps):
        run.step(loss=2.3).call("backward", scaled="none", factor=1.0)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=before)
        for at, columns in twins:
            if at == step:
                run.twin_step("fp32").twin("run", "", "gradient", **columns)
    return run


def _turned(cosine: float, flushed: int = 40) -> dict[str, Any]:
    return {"cosine": cosine, "norm_ratio": cosine, "flushed": flushed}


def _check(rule: Rule, run: RunBuilder) -> list[Finding]:
    return list(rule.check(run.build()))


@pytest.mark.parametrize(
    ("cosine", "severity"), [(0.9997, Severity.NOTE), (0.98, Severity.WARNING), (0.7, Severity.ERROR)]
)
def test_severity_is_what_was_measured(cosine: float, severity: Severity) -> None:
    (finding,) = _check(GradientUnderflow(), _run(FLUSHED, (5, _turned(cosine))))
    assert (finding.severity, finding.grade) == (severity, Grade.MEASURED)
    assert _evidence(finding)["measured_cosine"] == cosine
    assert _evidence(finding)["measured_flushed_share"] == 0.4
    assert bool(finding.fixes) is (severity is not Severity.NOTE)


def test_in_between_the_estimate_speaks_of_part_of_the_run() -> None:
    (finding,) = _check(GradientUnderflow(), _run(FLUSHED, (5, _turned(0.995))))
    assert finding.severity is Severity.WARNING
    assert "measured_cosine" in _evidence(finding)


def test_harm_on_a_first_step_that_later_ones_do_not_show_is_less_sure() -> None:
    (finding,) = _check(GradientUnderflow(), _run(FAR, (0, _turned(0.7))))
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    (later,) = _check(GradientUnderflow(), _run(FAR, (4, _turned(0.7))))
    assert (later.severity, later.confidence) == (Severity.ERROR, Confidence.HIGH)


def test_while_the_run_goes_on_a_first_step_waits_for_others() -> None:
    twin = (0, _turned(0.7))
    assert _check(GradientUnderflow(), _run(FAR, twin, steps=2, status="running")) == []
    assert len(_check(GradientUnderflow(), _run(FAR, twin, steps=3, status="running"))) == 1


def test_a_large_harmless_share_is_a_note_and_a_small_one_is_silent() -> None:
    (finding,) = _check(GradientUnderflow(), _run(FAR, (5, _turned(0.9999, 30))))
    assert (finding.severity, finding.fixes) == (Severity.NOTE, ())
    assert "Harmless underflow" in finding.summary
    assert _check(GradientUnderflow(), _run(FAR, (5, _turned(0.9999, 1)))) == []


def test_structural_zeros_bring_nothing_in_the_whole_diagnosis() -> None:
    diagnosis = diagnose(_run(FLUSHED, (5, {"flushed": 0})).build())
    assert diagnosis.findings == ()


def test_a_twin_that_is_not_finite_leaves_it_to_the_estimate() -> None:
    twin = {"nonfinite": 3, "overflowed": 3, "cosine": None, "norm_ratio": None}
    (with_twin,) = _check(GradientUnderflow(), _run(FLUSHED, (5, twin)))
    (without,) = _check(GradientUnderflow(), _run(FLUSHED))
    assert with_twin == without


def test_a_scaler_that_still_grows_stays_a_note() -> None:
    run = RunBuilder(device="cpu")
    for step in range(6):
        run.step(loss=2.3, loss_scale=65536.0)
        if step == 0:
            run.scaler("seen", enabled=True, scale=65536.0, growth_interval=2000, growth_factor=2.0)
        run.tensor("head", "grad_output", dtype="float16", exponents=FAR, loss_scale=65536.0)
    run.twin_step("fp32").twin("run", "", "gradient", **_turned(0.7))
    (finding,) = _check(LossScaleTooSmall(), run)
    assert (finding.severity, finding.grade) == (Severity.NOTE, Grade.MEASURED)


def test_a_measured_cure_comes_first_and_quotes_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "flushed 40.0 % → 0 %, cosine 0.7 → 0.9999"
    bf16 = Recommendation(Cure.BF16, "Use BF16", "bf16()", text, Grade.MEASURED)
    guess = Recommendation(Cure.STATIC_SCALE, "Guess", "guess()", "Perhaps.", Grade.ESTIMATED)
    scaler = Recommendation(Cure.DYNAMIC_SCALE, "Scale", "scale()", text, Grade.MEASURED)
    monkeypatch.setattr(measured_fixes, "recommend", lambda _: Recommendations((bf16, guess, scaler)))
    (finding,) = _check(GradientUnderflow(), _run(FLUSHED, (5, _turned(0.7))))
    assert [f.title for f in finding.fixes[:2]] == ["Use BF16", "Scale"]
    assert finding.fixes[0].expected == text
    assert "guess()" not in {f.code for f in finding.fixes}
    disabled = _run(FLUSHED, (5, _turned(0.7))).scaler("seen", enabled=False)
    (finding,) = _check(GradientUnderflow(), disabled)
    assert finding.fixes[1].code == 'scaler = torch.amp.GradScaler("cpu", enabled=True)'
    assert (finding.fixes[1].expected, finding.fixes[1].grade) == (text, Grade.MEASURED)


def _overflow(born_fp32: int | None, **op: Any) -> RunBuilder:
    """A projection whose small values give no sign of an overflow; `born_fp32` None without local twins."""
    run = RunBuilder(device="cpu")
    for _ in range(4):
        run.step(loss=math.nan, found_inf=True, applied=False)
        run.tensor("up", "activation", dtype="float16", exponents={3: 9}, inputs_finite=True)
        run.tensor("down", "activation", dtype="float16", exponents={3: 9}, posinf=3, inputs_finite=True)
    if born_fp32 is not None:
        values = {"born": 3, "born_fp32": born_fp32, "first_born": 5, "absmax": 1e5, "line": 41}
        run._step = 0
        run.twin_step(kind="local").op("aten.addmm", "down", file="m.py", **(values | op))
    return run


def test_what_local_twins_saw_overflow_needs_no_large_values() -> None:
    assert _check(ActivationOverflow(), _overflow(None)) == []
    (finding,) = _check(ActivationOverflow(), _overflow(0))
    assert (finding.grade, finding.confidence) == (Grade.MEASURED, Confidence.HIGH)
    assert finding.location.source == "m.py:41"
    assert finding.location.sites == ("down.out (activation)",)
    assert _evidence(finding)["born_elements"] == 3


def test_the_bf16_twin_of_the_failed_step_is_quoted() -> None:
    run = _overflow(0).twin("bf16", "", "gradient").twin("bf16", "", "loss", value=2.31)
    run.twin("fp32", "", "gradient").twin("fp32", "", "loss", value=2.3)
    (finding,) = _check(ActivationOverflow(), run)
    bf16 = finding.fixes[1]
    assert bf16.grade is Grade.MEASURED
    assert "Tried on step 0: all gradients are finite (loss 2.31)." in bf16.expected
    assert _evidence(finding)["loss_in_fp32"] == 2.3


def test_a_site_that_fp32_shares_once_is_not_blamed_on_other_steps() -> None:
    large = RunBuilder(device="cpu")
    for step in range(4):
        large.step(loss=math.nan)
        large.tensor("down", "activation", dtype="float16", exponents={15: 9}, posinf=3, inputs_finite=True)
        if step == 0:
            large.op("aten.div", "down", born=3, born_fp32=3, first_born=5)
    assert _check(ActivationOverflow(), large) == []
    verdict = diagnose(large.build()).verdict
    assert verdict.startswith("no cause found")


def _collapse(**op: Any) -> RunBuilder:
    run, scale = RunBuilder(device="cpu"), 65536.0
    for _ in range(20):
        run.step(loss=math.nan, loss_scale=scale, found_inf=True, applied=False)
        run.op("aten.log", "head", born=9, first_born=2, **op)
        run.scaler("skip", scale=scale).scaler("backoff", scale=scale, scale_after=scale / 2)
        scale /= 2
    return run


def test_a_collapse_that_fp32_shares_is_said_to_be_no_matter_of_precision() -> None:
    both = next(e for e in ScaleCollapse.SICK if e.title == "measured: nor is FP32 finite")
    (finding,) = ScaleCollapse().check(both.build().build())
    assert "not a matter of precision" in finding.summary
    assert not any("bfloat16" in fix.code for fix in finding.fixes)
    # An operation by itself: FP16 may have flushed the epsilon that FP32 then divides by.
    (alone,) = _check(ScaleCollapse(), _collapse(born_fp32=9))
    assert "precision" not in alone.summary
    (shared,) = _check(ScaleCollapse(), _collapse(born_fp32=0))
    assert "precision" not in shared.summary
    assert shared.grade is Grade.MEASURED


def _by_hand(**op: Any) -> RunBuilder:
    run = RunBuilder(device="cpu").step(loss=2.3).call("backward", scaled="none", factor=2.0**15)
    run.tensor("head", "activation", dtype="float16", exponents={0: 9}, inputs_finite=True)
    run.tensor("head", "grad_output", dtype="float16", exponents={6: 100})
    run.step(loss=2.3, examined=False).call("backward", scaled="none", factor=2.0**15)
    values = {"born": 9, "first_born": 7, "absmax": 9e4, "direction": "backward", "file": "t.py", "line": 8}
    return run.op("aten.mm", "head", source="replay", **(values | op))


def test_a_replayed_overflow_names_its_line_and_a_scale_that_fits() -> None:
    (finding,) = _check(LossScaleTooLarge(), _by_hand())
    assert finding.location.source == "t.py:8"
    assert finding.location.first_step == 1
    # 9e4 / 2^15 is 2.7: 2^14 times that is below 65504, and a binade of headroom is kept.
    assert "SCALE = 8192.0" in finding.fixes[-1].code


@pytest.mark.parametrize("op", [{"direction": "forward"}, {"born_fp32": 9}, {"absmax": 9.0}])
def test_other_births_are_not_the_scales_doing(op: dict[str, Any]) -> None:
    assert _check(LossScaleTooLarge(), _by_hand(**op)) == []


def test_an_examined_overflow_is_told_with_its_operation() -> None:
    run = RunBuilder(device="cpu").step(loss=2.3).call("backward", scaled="none", factor=2.0**20)
    run.tensor("head", "activation", dtype="float16", exponents={0: 9}, inputs_finite=True)
    run.tensor("head", "grad_output", dtype="float16", exponents={15: 9}, posinf=2)
    op = {"born": 2, "first_born": 7, "absmax": 9e4, "file": "t.py", "line": 8}
    run.op("aten.mm", "head", direction="backward", **op)
    (finding,) = _check(LossScaleTooLarge(), run)
    assert (finding.location.source, finding.grade) == ("t.py:8", Grade.MEASURED)
    assert finding.location.sites == ("head.out (grad_output)",)


@pytest.mark.parametrize(("zeros", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_a_norm_that_hands_on_nothing_but_zeros_is_an_error(zeros: bool, severity: Severity) -> None:
    run = RunBuilder(device="cpu")
    for _ in range(2):
        run.step(loss=2.3).twin_step("fp32").twin("run", "", "gradient", cosine=0.999)
        run.op("aten.pow", "norm", seq=1, inputs_from=[-1], born=60, overflowed=60, first_born=1, absmax=2e6)
        run.op("aten.mean", "norm", seq=2, inputs_from=[1], numel=10)
        run.op("aten.rsqrt", "norm", seq=3, inputs_from=[2], numel=10, nonzero=0 if zeros else 4)
        run.op("aten.mul", "norm", seq=4, inputs_from=[-1, 3])
    (finding,) = NormOverflow().check(run.build())
    assert finding.severity is severity
    assert ("zeros_handed_on" in _evidence(finding)) is zeros
