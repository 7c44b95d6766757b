"""The rules that say that precision is not the cause: their words, their numbers and what they must not take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ampdoctor.analysis.divergence import Divergence
from ampdoctor.analysis.words.nan_report import as_in_fp32
from ampdoctor.engine import diagnose
from ampdoctor.finding import Confidence, Grade, Severity
from ampdoctor.rules.dead_units import DeadUnits
from ampdoctor.rules.nan_not_precision import NanNotPrecision
from ampdoctor.rules.vanishing_gradient import VanishingGradient
from ampdoctor.rules.zero_init_deadlock import ZeroInitDeadlock
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule


def _only(rule: type[Rule], title: str) -> Finding:
    example = next(e for e in rule.SICK if e.title == title)
    (found,) = rule().check(example.build().build())
    return found


@pytest.mark.parametrize(
    "rule", [NanNotPrecision, VanishingGradient, DeadUnits, ZeroInitDeadlock], ids=lambda r: r.name
)
def test_the_verdict_says_that_it_is_not_precision(rule: type[Rule]) -> None:
    diagnosis = diagnose(rule.SICK[0].build().build(), rules=[rule()])
    assert diagnosis.verdict.startswith("Not a precision problem. ")
    assert diagnosis.verdict.endswith(f"({rule.name})")
    assert diagnosis.findings[0].summary.rstrip(".") in diagnosis.verdict


def test_bad_data_is_told_with_its_distance() -> None:
    found = _only(NanNotPrecision, "NaN in the data, every fourth batch")
    assert "every 4 steps" in found.summary
    assert found.severity is Severity.WARNING
    assert found.location.first_step == 1
    assert {e.name: e.value for e in found.evidence}["steps_between"] == 4


def test_a_run_that_is_lost_is_an_error() -> None:
    found = _only(NanNotPrecision, "a loss that ran away in FP32")
    assert found.severity is Severity.ERROR
    assert "learning rate" in found.summary
    assert found.location.first_step == 2
    assert "lr=0.01" in found.fixes[0].code


def test_an_empty_mask_is_told_by_its_line() -> None:
    found = _only(NanNotPrecision, "an empty mask, in FP32 as well")
    assert "a division by zero" in found.summary
    assert found.location.source == "train.py:41"
    assert found.grade is Grade.MEASURED


def test_a_nan_in_half_without_a_second_opinion_is_not_judged() -> None:
    run = RunBuilder().step(loss=2.3)
    run.tensor("up", "activation", dtype="float16", exponents={0: 9})
    run.step(loss=math.nan).tensor("up", "activation", dtype="float16", exponents={0: 9})
    assert list(NanNotPrecision().check(run.build())) == []


def test_weights_that_start_as_nan() -> None:
    run = RunBuilder().step(loss=math.nan).tensor("up", "weight", slot="weight", exponents={0: 9}, nan=1)
    (found,) = NanNotPrecision().check(run.build())
    assert "starts with weights that are not finite, in `up.weight`" in found.summary


def test_an_update_that_dwarfs_the_weights() -> None:
    run = RunBuilder().step(loss=2.3, lr=1e4)
    run.tensor("up", "activation", dtype="float32", exponents={0: 9})
    run.tensor("up", "weight", slot="weight", exponents={-3: 10})
    run.tensor("up", "update", slot="weight", exponents={6: 10})
    run.step(loss=math.nan, examined=False)
    (found,) = NanNotPrecision().check(run.build())
    assert "512 times as large as all the weights" in found.summary
    assert found.location.first_step == 0


def test_the_layers_that_stand_still_are_named() -> None:
    found = _only(VanishingGradient, "three binades a layer, in FP32")
    assert found.location.sites[0] == "body.0.weight (weight_grad)"
    assert {e.name: e.value for e in found.evidence}["first_over_best"] == pytest.approx(2.0**-18)
    assert _only(VanishingGradient, "measured: faded in the FP32 twin as well").grade is Grade.MEASURED


def test_all_dead_is_an_error_and_counts_what_starves() -> None:
    found = _only(DeadUnits, "all units, in FP16")
    assert found.severity is Severity.ERROR
    assert {e.name: e.value for e in found.evidence}["zero_gradients_share"] == 1.0


def test_both_factors_are_named_and_one_is_started_again() -> None:
    found = _only(ZeroInitDeadlock, "LoRA with both at zero")
    assert found.location.sites == ("a.weight (weight)", "b.weight (weight)")
    assert 'get_parameter("a.weight")' in found.fixes[0].code


@pytest.mark.parametrize(
    ("rule", "title"),
    [(DeadUnits, "all units, in FP16"), (ZeroInitDeadlock, "LoRA with both at zero")],
    ids=["dead units", "a deadlock"],
)
def test_what_was_not_compared_with_fp32_says_so(rule: type[Rule], title: str) -> None:
    found = _only(rule, title)
    assert found.summary.endswith("; this was not compared with FP32.")
    assert found.confidence is Confidence.MEDIUM
    assert found.grade is Grade.OBSERVED


def test_a_run_in_fp32_is_its_own_comparison() -> None:
    found = _only(DeadUnits, "all units, in FP32")
    assert found.summary.endswith("; the run is FP32 throughout.")
    assert found.confidence is Confidence.HIGH


def test_a_twin_that_has_the_same_zeros_is_a_measurement() -> None:
    found = _only(DeadUnits, "measured: FP32 has the same zeros")
    assert found.summary.endswith("; its FP32 twin has the same zeros.")
    assert (found.confidence, found.grade) == (Confidence.HIGH, Grade.MEASURED)


def test_a_run_in_half_that_ran_away_does_not_speak_for_fp32() -> None:
    found = Divergence(began=2, broke=3, start=2.3, peak=2e3)
    half = RunBuilder().step(loss=2.3).tensor("up", "activation", dtype="float16", exponents={0: 9}).build()
    wide = RunBuilder().step(loss=2.3).tensor("up", "activation", exponents={0: 9}).build()
    assert as_in_fp32(half, found) == "; whether FP32 runs away as well was not measured"
    assert as_in_fp32(half, replace(found, in_fp32=3)) == ", in FP32 as much as here"
    assert as_in_fp32(wide, found) == ", and the run is FP32 throughout"


@pytest.mark.parametrize(("nonfinite_fp32", "told"), [(0, "mask-constant-overflow"), (100, "nan-not-precision")])
def test_rows_masked_throughout_are_precision_where_fp32_is_finite(nonfinite_fp32: int, told: str) -> None:
    """The mask's -1e9 becomes -inf in the cast; were it -inf in FP32 too, that would be NaN as well."""
    run, half = RunBuilder(), {"dtype_in": "float16", "dtype_out": "float16"}
    for _ in range(4):
        run.step(loss=math.nan, found_inf=True).call("backward")
        run.tensor("up", "weight", slot="weight", exponents={-3: 100})
        run.twin_step("fp32").op("aten.bmm", seq=1, inputs_from=[-1], **half)
        run.op("aten._to_copy", seq=2, inputs_from=[], absmax=1e9, born=40, overflowed=40, first_born=2)
        run.op("aten.add", seq=3, inputs_from=[1, 2], **half)
        run.op("aten._softmax", seq=4, inputs_from=[3], born=20, born_fp32=20, first_born=4, **half)
        broken = {"nonfinite": 100, "nonfinite_fp32": nonfinite_fp32, "overflowed": 100 - nonfinite_fp32}
        run.twin("run", "", "gradient", cosine=None, norm_ratio=None, **broken)
    assert [f.name for f in diagnose(run.build()).findings] == [told]
