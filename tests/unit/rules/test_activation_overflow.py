"""activation-overflow beyond its examples: where it points, and what it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.finding import Confidence, Finding, Severity
from ampdoctor.rules.activation_overflow import ActivationOverflow
from ampdoctor.trace.builder import RunBuilder


def _step(run: RunBuilder, slot: str = "out", *, large: int = 12, loss: float = math.nan, **birth: Any) -> RunBuilder:
    run.step(loss=loss, found_inf=not math.isfinite(loss))
    run.tensor("up", "activation", dtype="float16", exponents={large: 9}, inputs_finite=True)
    finite = None if slot == "in" else True
    columns = {"dtype": "float16", "exponents": {large: 9}, "inputs_finite": finite} | birth
    return run.tensor("down", "activation", slot=slot, **columns)


def _check(run: RunBuilder) -> list[Finding]:
    return list(ActivationOverflow().check(run.build()))


def _lasting(slot: str = "out", **birth: Any) -> RunBuilder:
    run = RunBuilder(device="cpu")
    for _ in range(4):
        _step(run, slot, **birth)
    return run


def test_it_points_to_the_module_and_what_went_in() -> None:
    (finding,) = _check(_lasting(posinf=3, exponents={15: 6}))
    evidence = {e.name: e.value for e in finding.evidence}
    assert "in `down`" in finding.summary
    assert finding.location.sites == ("down.out (activation)",)
    assert evidence["nonfinite_elements"] == 3
    assert evidence["largest_before"] == 2.0**12
    assert evidence["largest_finite"] == 2.0**15
    assert evidence["steps_affected"] == 4


def test_the_first_cure_names_the_module() -> None:
    (finding,) = _check(_lasting(posinf=3))
    assert 'in_fp32(model.get_submodule("down"))' in finding.fixes[0].code
    assert not any("GradScaler(" in fix.code for fix in finding.fixes)


def test_an_operation_between_modules_is_told_by_its_neighbours() -> None:
    (finding,) = _check(_lasting("in", posinf=3))
    assert "between `up` and `down`" in finding.summary
    assert ".float()" in finding.fixes[0].code


def test_nan_alone_is_less_sure() -> None:
    (finding,) = _check(_lasting(nan=9, exponents={}))
    assert finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("slot", ["out", "in"])
def test_nan_out_of_small_values_is_no_overflow(slot: str) -> None:
    assert _check(_lasting(slot, nan=9, large=3)) == []


def test_infinity_out_of_small_values_between_modules_is_a_division_by_zero() -> None:
    assert _check(_lasting("in", posinf=9, large=3)) == []


@pytest.mark.parametrize("slot", ["out", "in"])
@pytest.mark.parametrize("born", [{"posinf": 3}, {"neginf": 3}, {"posinf": 1, "nan": 2}])
def test_infinity_among_small_values_is_no_overflow(slot: str, born: dict[str, int]) -> None:
    assert _check(_lasting(slot, large=0, exponents={-1: 6}, **born)) == []


def test_large_weights_may_make_large_sums_of_small_values() -> None:
    run = _lasting(posinf=9, large=3, exponents={})
    run.tensor("down", "weight", slot="weight", exponents={8: 9}, shape=[3, 64])
    (finding,) = _check(run)
    assert finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize(("top", "confidence"), [(15, Confidence.HIGH), (12, Confidence.MEDIUM)])
def test_only_values_near_the_max_make_it_sure(top: int, confidence: Confidence) -> None:
    (finding,) = _check(_lasting(posinf=3, exponents={top: 6}))
    assert finding.confidence is confidence


def test_weights_that_are_broken_already_are_not_to_blame_on_the_activation() -> None:
    run = _lasting(posinf=3, inputs_finite=False)
    assert _check(run) == []
    broken = RunBuilder().step(loss=1.0).tensor("up", "weight", slot="weight", nan=1)
    assert _check(_step(broken, posinf=3)) == []


def test_one_batch_that_the_scaler_skips_is_a_warning() -> None:
    run = RunBuilder(device="cpu")
    for _ in range(3):
        _step(run, loss=1.0)
    _step(_step(run, posinf=1), loss=1.0)
    (finding,) = _check(run)
    assert finding.severity is Severity.WARNING
    assert finding.location.first_step == finding.location.last_step == 3


def test_bf16_and_fp32_are_left_alone() -> None:
    for dtype in ("bfloat16", "float32"):
        assert _check(_lasting(posinf=3, dtype=dtype)) == []
