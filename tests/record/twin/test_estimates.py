"""What-if against the truth: estimates and their bounds, and what twins measured, on runs of the test bed's models.

The whole table, over more scales, is in benchmarks/README.md.
"""

from __future__ import annotations

import json
from statistics import mean, median
from typing import TYPE_CHECKING

import pytest

from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.cli.app import invoke
from ampdoctor.formats import FP16
from benchmarks.estimates import EXPONENTS, LATER, MODELS, points, record, truths
from tests.record.twin.reference import real_gradients
from tests.record.twin.setting import Setting
from tests.record.twin.structural import STRUCTURAL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.twin.training import Case

MEDIAN_ERROR = 3.0
"""Percentage points."""

WITHIN_BOUNDS = 0.95

BY_NAME = {case.name: case for case in MODELS}


@pytest.mark.parametrize(("exponent", "twins"), [(-8, False), (0, False), (8, False), (-8, True)])
def test_estimates_are_near_the_truth_and_bounds_hold_it(exponent: int, twins: bool) -> None:
    asked = [p for case in MODELS for p in points(case, [exponent], twins=twins)]
    assert len(asked) == len(MODELS) * len(EXPONENTS)
    assert mean(p.held for p in asked) >= WITHIN_BOUNDS
    known = [p for p in asked if p.known]
    assert median(p.error for p in known) <= MEDIAN_ERROR
    # Most scales flush next to nothing, which is easily said. Those between are held to a number of their own.
    hard = [p for p in known if p.hard]
    assert len(hard) > len(asked) / 4
    assert median(p.error for p in hard) <= MEDIAN_ERROR + 2.0
    assert mean(p.held for p in hard) >= WITHIN_BOUNDS - 0.05


def test_zeros_of_the_model_s_own_are_not_taken_for_flushed() -> None:
    asked = [p for case in STRUCTURAL for p in points(case, [0])]
    assert mean(p.held for p in asked) >= WITHIN_BOUNDS
    assert max(p.error for p in asked if p.exponent >= 0) <= 1.0


@pytest.mark.parametrize("case", [c for c in MODELS if c.name != "half-weights"], ids=str)
def test_measured_is_the_truth_where_a_twin_was_and_null_elsewhere(case: Case, tmp_path: Path) -> None:
    run, _ = record(case, [-8] * (LATER + 1), tmp_path / "run", prove=True)
    recorded = recorded_step(run, LATER)
    twins = {
        r.loss_scale: r.counterfactual
        for r in recorded.twins
        if r.role == "gradient" and r.number_format == "fp16" and not r.fp32_modules
    }
    assert twins
    truth = truths(case, -8, EXPONENTS, steps_before=LATER)
    for exponent, (gone, nonzero) in truth.items():
        measured = what_if(recorded, FP16, 2.0**exponent).total.measured
        if exponent == -8 or 2.0**exponent in twins:
            assert measured == gone / nonzero
        else:
            assert measured is None
    own = [r for r in recorded.twins if (r.role, r.counterfactual) == ("weight_grad", "run")]
    assert sum(r.flushed for r in own) == truth[-8][0] > 0


def test_code_that_divides_half_gradients_does_so_in_twins_at_other_scales_too(tmp_path: Path) -> None:
    run, _ = record(BY_NAME["half-weights"], [-8] * (LATER + 1), tmp_path / "run", prove=True)
    recorded = recorded_step(run, LATER)
    assert recorded.backward.divided
    shares = {e: what_if(recorded, FP16, 2.0**e).total.measured for e in EXPONENTS}
    assert {e for e, share in shares.items() if share is not None} == {-8}


@pytest.mark.parametrize("name", ["mlp", "half-weights"])
@pytest.mark.parametrize("exponent", [-8, -4, 8])
def test_who_divides_by_hand_is_told_from_who_does_not(name: str, exponent: int, tmp_path: Path) -> None:
    run, _ = record(BY_NAME[name], [exponent], tmp_path / "run")
    assert recorded_step(run).backward.divided is (name == "half-weights")


@pytest.mark.parametrize("case", MODELS[:6], ids=str)
def test_bounds_hold_between_powers_of_two_as_well(case: Case, tmp_path: Path) -> None:
    run, _ = record(case, [0], tmp_path / "run")
    recorded = recorded_step(run)
    full = real_gradients(case, Setting(None, 1.0))
    for scale in (3.0 * 2.0**-12, 1000.0 * 2.0**-14, 1.9 * 2.0**-5):
        half = real_gradients(case, Setting(scale=scale, scaled_by="hand"))
        gone = sum(int(((half[n] == 0) & (g != 0)).sum()) for n, g in full.items())
        truth = gone / sum(int(g.count_nonzero()) for g in full.values())
        share = what_if(recorded, FP16, scale).total
        assert share.low is not None
        assert share.high is not None
        assert share.low <= truth <= share.high


def test_the_command_answers_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = BY_NAME["mlp"]
    record(case, [-8] * (LATER + 1), tmp_path / "run", prove=True)
    gone, nonzero = truths(case, -8, [-8], steps_before=LATER)[-8]

    def answer(*options: str) -> dict[str, object]:
        arguments = ["whatif", str(tmp_path / "run"), "--format", "json", *options]
        assert invoke(arguments) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    own = answer("--step", str(LATER))
    assert own["scale"] == own["estimated_at"] == 2.0**-8
    total = own["total"]
    assert isinstance(total, dict)
    assert total["measured"] == gone / nonzero
    assert total["low"] <= total["measured"] <= total["high"]
    other = answer("--step", str(LATER), "--scale", "2^-3")["total"]
    assert isinstance(other, dict)
    assert other["measured"] is None
    assert 0.0 <= other["low"] <= other["estimated"] <= other["high"] < total["high"]
    assert answer("--scale", "3")["estimated_at"] == 2.0
