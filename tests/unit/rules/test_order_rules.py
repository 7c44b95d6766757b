"""unscaled-backward, clip-before-unscale and lost-updates beyond their examples."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.finding import Confidence, Finding, Severity
from ampdoctor.rules.clip_before_unscale import ClipBeforeUnscale
from ampdoctor.rules.lost_updates import LostUpdates
from ampdoctor.rules.unscaled_backward import UnscaledBackward
from ampdoctor.trace.builder import RunBuilder


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def _end(run: RunBuilder, scale: float = 4096.0) -> RunBuilder:
    run.call("scaler_step", target="optimizer0").scaler("step", optimizer="optimizer0", scale=scale)
    return run.call("update", target="scaler0")


def _backward(run: RunBuilder, scaled: str, line: int) -> RunBuilder:
    return run.call("backward", scaled=scaled, optimizers=["optimizer0"], file="train.py", line=line)


def test_each_line_that_bypasses_the_scaler_is_a_finding_of_its_own() -> None:
    run = RunBuilder()
    for _ in range(4):
        _backward(_backward(_backward(run.step(loss=1.0), "all", 10), "none", 11), "none", 12)
        _end(run)
    findings = list(UnscaledBackward().check(run.build()))
    assert [f.location.source for f in findings] == ["train.py:11", "train.py:12"]
    assert _evidence(findings[0]) == {"loss_scale": 4096.0, "steps_share": 1.0, "other_backward_passes": 2}
    assert "train.py:11" in findings[0].fixes[0].code


def test_a_gradient_that_is_cleared_before_the_step_harms_nobody() -> None:
    run = _backward(RunBuilder().step(loss=1.0), "none", 11).call("zero_grad", target="optimizer0")
    assert list(UnscaledBackward().check(_end(_backward(run, "all", 12)).build())) == []


def test_a_disabled_scaler_divides_nothing() -> None:
    run = _backward(RunBuilder().step(loss=1.0).scaler("seen", enabled=False), "none", 11)
    assert list(UnscaledBackward().check(run.call("optimizer_step", target="optimizer0").build())) == []


def _clipped(limit: float, *norms: float | None, call: str = "clip_norm", scale: float = 4096.0) -> list[Finding]:
    run = RunBuilder()
    for norm in norms:
        run.step(loss=1.0).call(call, target="optimizer0", limit=limit, norm=norm, file="train.py", line=42)
        _end(run, scale)
    return list(ClipBeforeUnscale().check(run.build()))


def test_clipping_is_told_with_its_effective_limit() -> None:
    (finding,) = _clipped(1.0, 8192.0, 4096.0)
    assert finding.severity is Severity.ERROR
    assert _evidence(finding)["effective_limit"] == 1.0 / 4096
    assert _evidence(finding)["shrunk_times"] == 4096.0
    assert finding.location.source == "train.py:42"
    assert finding.fixes[0].code.startswith("scaler.unscale_(optimizer)")


@pytest.mark.parametrize(
    ("limit", "norms", "severity"),
    [
        (1e9, (8e3, 9e3), Severity.NOTE),
        (7e3, (8e3, 9e3), Severity.WARNING),
        (1e3, (8e3, 9e3), Severity.ERROR),
        (1.0, (float("inf"), 8e3), Severity.ERROR),
    ],
)
def test_clipping_is_as_bad_as_it_shrinks(limit: float, norms: tuple[float, ...], severity: Severity) -> None:
    (finding,) = _clipped(limit, *norms)
    assert finding.severity is severity


def test_a_limit_on_elements_that_nobody_measured_is_less_sure() -> None:
    (finding,) = _clipped(0.5, None, None, call="clip_value")
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_a_limit_that_looks_multiplied_by_the_scale_is_a_note() -> None:
    (finding,) = _clipped(0.5 * 4096, 8e3, 9e3)
    assert (finding.severity, finding.confidence) == (Severity.NOTE, Confidence.LOW)
    assert "0.5)" in finding.fixes[0].code
    for limit, scale in ((1.0, 4096.0), (1e5, 65536.0), (5.0, 128.0)):
        (finding,) = _clipped(limit, 2e5, 3e5, scale=scale)
        assert finding.severity is Severity.ERROR


def test_a_scale_of_one_needs_no_unscale() -> None:
    assert _clipped(1.0, 8e3, scale=1.0) == []


def _cut(*steps: tuple[float, float, float]) -> list[Finding]:
    """Steps as (scale, norm that the gradients had, norm that code has left)."""
    run = RunBuilder()
    for scale, norm, left in steps:
        run.step(loss=1.0, loss_scale=scale).call("backward", scaled="all", optimizers=["optimizer0"])
        run.call("scaler_step", target="optimizer0", norm=left, resized=left / norm, file="train.py", line=9)
        run.scaler("step", optimizer="optimizer0", scale=scale)
    return list(ClipBeforeUnscale().check(run.build()))


def test_gradients_that_code_cuts_to_one_norm() -> None:
    (finding,) = _cut((4096.0, 9e3, 1.0), (4096.0, 9e2, 1.004), (8192.0, 3e4, 1.0))
    assert finding.severity is Severity.ERROR
    assert _evidence(finding)["effective_limit"] == 1.0 / 8192
    assert _evidence(finding)["norm_before"] == pytest.approx(9e3)
    assert finding.location.source == "train.py:9"


@pytest.mark.parametrize(
    "steps",
    [
        [(4096.0, 9e3, 1.0), (4096.0, 9e2, 1.0)],
        [(4096.0, 9e3, 1.0), (4096.0, 9e2, 1.0), (4096.0, 9e2, 9e1)],
        [(4096.0, 9e3, 9e3), (4096.0, 9e2, 9e2), (4096.0, 8e2, 8e2)],
        [(4096.0, 9e3, 4096.0), (8192.0, 3e4, 8192.0), (4096.0, 3e4, 4096.0)],
        [(4096.0, 9e3, 2048.0), (4096.0, 8e4, 2048.0), (4096.0, 3e4, 2048.0)],
        [(4096.0, 800.0, 100.0), (4096.0, 801.0, 100.1), (4096.0, 802.0, 100.2)],
    ],
    ids=["two steps", "not always", "never", "with the scale", "at half the scale", "divided by a count"],
)
def test_gradients_that_code_makes_smaller_for_other_reasons(steps: list[tuple[float, float, float]]) -> None:
    assert _cut(*steps) == []


def _updates(unchanged: int, **columns: Any) -> RunBuilder:
    run = RunBuilder().step(**columns).module("body", dtypes=["bfloat16"]).optimizer("AdamW", lr=1e-4)
    run.tensor("body", "weight", slot="weight", dtype="bfloat16", exponents={-3: 1000})
    return run.tensor(
        "body", "update", slot="weight", dtype="bfloat16", exponents={-13: 1000}, expected_to_move=1000,
        unchanged=unchanged, energy_unchanged=unchanged / 1000, small_updates=unchanged, small_updates_moved=0,
    )  # fmt: skip


@pytest.mark.parametrize(("unchanged", "severity"), [(300, Severity.WARNING), (700, Severity.ERROR)])
def test_lost_updates_are_as_bad_as_the_movement_lost(unchanged: int, severity: Severity) -> None:
    (finding,) = LostUpdates().check(_updates(unchanged).build())
    assert finding.severity is severity
    assert _evidence(finding)["unchanged_share"] == unchanged / 1000
    assert finding.location.sites == ("body.weight (update)",)


def test_the_spacing_of_the_weights_is_told_beside_the_learning_rate() -> None:
    (finding,) = LostUpdates().check(_updates(800).build())
    assert _evidence(finding)["half_last_place"] == 2.0**-3 * 2.0**-7 / 2
    text = next(e.text for e in finding.evidence if e.name == "half_last_place")
    assert "0.0001" in text


def test_a_skipped_step_loses_nothing() -> None:
    assert list(LostUpdates().check(_updates(1000, applied=False).build())) == []


def test_half_weights_whose_updates_were_not_measured_are_not_passed() -> None:
    run = RunBuilder().step().module("body", dtypes=["bfloat16"])
    run.tensor("body", "update", slot="weight", dtype="bfloat16", exponents={-13: 9})
    assert LostUpdates().lacks(run.build()) == ["tensors.expected_to_move"]
    frozen = RunBuilder().step().module("body", dtypes=["bfloat16"], trainable=0).tensor("body", "weight")
    assert LostUpdates().lacks(frozen.build()) == []
