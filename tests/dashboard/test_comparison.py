"""Numbers of runs side by side, and what became of their findings and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.diagnosis import Diagnosis
from ampdoctor.finding import Confidence, Finding, Grade, Severity
from ampdoctor.precision import PrecisionUsed
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import RunInfo
from ampdoctor_dashboard.data.comparison import METRICS, Change, Metric, change, last_common_step, numbers_of, rows
from ampdoctor_dashboard.data.differences import BOTH, FIXED, NEW, changed_findings, differing, settings_of
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path

LOSS = Metric("loss")
SHARE = Metric("zeros", kind="share")
COSINE = Metric("cosine", Grade.MEASURED, lower_is_better=False)


def _run(zeros: int, losses: tuple[float, ...] = (4.0, 2.0), **columns: float) -> RunBuilder:
    run = RunBuilder()
    for loss in losses:
        run.step(loss=loss, **columns)
        run.tensor("head", "weight_grad", slot="weight", exponents={-3: 100 - zeros}, zeros=zeros)
        run.tensor("head", "activation", zeros=100)
    return run


def test_numbers_are_those_of_the_steps_and_the_gradients(tmp_path: Path) -> None:
    builder = _run(25, (4.0, 2.0), loss_scale=8.0, wall_ms=20.0)
    builder.step(loss=1.0, applied=False, loss_scale=4.0, wall_ms=5.0, examined=False)
    builder.memory("peak", "weights", 100).memory("peak", "activations", 50).memory("forward", "weights", 999)
    found = numbers_of(opened(tmp_path / "run", builder))
    assert found == {
        "loss": 1.0, "skipped": pytest.approx(1 / 3), "lowest_scale": 4.0, "wall_ms": 5.0, "steps": 3.0,
        "examined": 2.0, "nonfinite": 0.0, "zeros": 0.25,
        "memory:total": 150.0, "memory:weights": 100.0, "memory:activations": 50.0,
    }  # fmt: skip


def test_a_run_without_steps_has_nothing_to_compare(tmp_path: Path) -> None:
    found = numbers_of(opened(tmp_path / "run", RunBuilder()))
    assert found == {"steps": 0.0, "examined": 0.0}


def test_the_loss_is_also_taken_where_the_shorter_run_ends(tmp_path: Path) -> None:
    long = opened(tmp_path / "long", _run(0, (9.0, 5.0, 1.0)))
    short = opened(tmp_path / "short", _run(0, (9.0, 4.0)))
    assert last_common_step((long, short)) == 1
    assert last_common_step((long, long)) is None
    by_key = {row.metric.key: row for row in rows(long, (short,))}
    assert (by_key["loss_common"].base, by_key["loss_common"].changes[0].value) == (5.0, 4.0)
    assert (by_key["loss"].base, by_key["loss"].changes[0].value) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("metric", "base", "value", "expected"),
    [
        (LOSS, 2.0, 3.0, Change(3.0, 0.5, "worse")),
        (LOSS, 2.0, 1.0, Change(1.0, -0.5, "better")),
        (LOSS, 2.0, 2.0, Change(2.0, 0.0, "same")),
        (LOSS, 0.0, 1.0, Change(1.0, float("inf"), "worse")),
        (LOSS, None, 1.0, Change(1.0, None, "unknown")),
        (LOSS, 2.0, float("inf"), Change(float("inf"), None, "worse")),
        (LOSS, float("inf"), 2.0, Change(2.0, None, "better")),
        (COSINE, 0.9, 0.45, Change(0.45, -0.5, "worse")),
        (SHARE, 0.0, 0.00005, Change(0.00005, float("inf"), "same")),
        (Metric("wall_ms"), 100.0, 104.0, Change(104.0, 0.04, "same")),
        (Metric("memory:total", kind="bytes"), 5120.0, 5140.0, Change(5140.0, 20 / 5120, "same")),
        (Metric("memory:total", kind="bytes"), 2.0**30, 2.0**31, Change(2.0**31, 1.0, "worse")),
        (Metric("steps", lower_is_better=None), 10.0, 20.0, Change(20.0, 1.0, "other")),
    ],
)
def test_a_change_says_which_way_it_went(
    metric: Metric, base: float | None, value: float | None, expected: Change
) -> None:
    assert change(metric, base, value) == expected


def test_what_got_worse_comes_first_and_what_is_unknown_last(tmp_path: Path) -> None:
    base = opened(tmp_path / "base", _run(10, (2.0, 2.0), loss_scale=4.0))
    worse = opened(tmp_path / "worse", _run(50, (2.0, 1.0)))
    keys = [row.metric.key for row in rows(base, (worse,))]
    assert keys[0] == "zeros"
    assert keys[1] == "loss"
    assert keys[-1] == "lowest_scale"


def test_every_metric_that_is_measured_says_so() -> None:
    assert {m.key for m in METRICS if m.grade is Grade.MEASURED} == {"flushed", "cosine"}


def _finding(name: str, severity: Severity = Severity.ERROR, *consequences: Finding) -> Finding:
    return Finding("X1", name, severity, f"{name}.", Confidence.HIGH, Grade.OBSERVED, consequences=consequences)


def _diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis("", "", PrecisionUsed("", "none"), findings)


def test_findings_are_new_gone_or_in_both() -> None:
    base = _diagnosis(_finding("gone"), _finding("kept"))
    other = _diagnosis(_finding("kept", Severity.ERROR, _finding("follows", Severity.NOTE)), _finding("fresh"))
    found = [(what, finding.name) for what, finding in changed_findings(base, other)]
    assert found == [(NEW, "fresh"), (NEW, "follows"), (FIXED, "gone"), (BOTH, "kept")]


def test_only_settings_that_differ_are_listed() -> None:
    one = settings_of(RunInfo(device="cpu", versions={"torch": "2.1"}, precision={"a": {"b": True}}), "FP16")
    two = settings_of(RunInfo(device="cpu", versions={"torch": "2.2"}, precision={"a": {"b": True}}), None)
    found, same = differing([one, two])
    assert found == [("precision really used", ["FP16", ""]), ("torch", ["2.1", "2.2"])]
    assert same == len(one) - 2
    assert one["torch: a.b"] == "True"
