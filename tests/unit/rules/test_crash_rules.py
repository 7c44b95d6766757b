"""Exceptions that a training ended with, or lived through, by the order of calls before them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from ampdoctor.rules import find_rule
from ampdoctor.trace.builder import RunBuilder

CONSTANT = "RuntimeError: value cannot be converted to type c10::Half without overflow"
UNSCALED = "RuntimeError: unscale_() has already been called on this optimizer since the last update()."
FP16_GRADIENTS = "ValueError: Attempting to unscale FP16 gradients."


def findings(rule: str, run: RunBuilder) -> list[Any]:
    return list(find_rule(rule)().check(run.build()))


def raised(run: RunBuilder, error: str = CONSTANT, call: str = "exception", **columns: Any) -> RunBuilder:
    given = {"error_file": "train.py", "error_line": 7} | columns
    return run.call(call, error=error, **given)


def test_a_crash_before_the_first_step_is_the_verdict() -> None:
    diagnosis = diagnose(raised(RunBuilder(), step=0).build())
    assert diagnosis.verdict.endswith("(mask-constant-overflow)")
    assert diagnosis.findings[0].location.source == "train.py:7"
    assert diagnosis.findings[0].severity is Severity.ERROR


def test_an_exception_that_ended_the_script_is_told_as_that() -> None:
    run = raised(RunBuilder(status="crashed", exception=CONSTANT), step=0)
    (finding,) = findings("mask-constant-overflow", run)
    assert any("the script ended with it" in e.text for e in finding.evidence)


def test_a_way_round_that_is_taken_on_every_step_is_a_note() -> None:
    run = RunBuilder()
    for _ in range(6):
        raised(run.step(loss=1.0)).call("backward")
    (finding,) = findings("mask-constant-overflow", run)
    assert finding.severity is Severity.NOTE


def test_one_exception_in_a_run_that_went_on_is_a_note() -> None:
    run = raised(RunBuilder().step(loss=1.0)).step(loss=0.9).step(loss=0.8)
    (finding,) = findings("mask-constant-overflow", run)
    assert finding.severity is Severity.NOTE


def test_batches_lost_now_and_then_are_a_warning() -> None:
    run = RunBuilder()
    for step in range(9):
        run.step(loss=1.0)
        if step % 3 == 0:
            raised(run)
    (finding,) = findings("mask-constant-overflow", run)
    assert finding.severity is Severity.WARNING


def test_the_constant_is_told_where_torch_tells_it() -> None:
    run = raised(
        RunBuilder(), "RuntimeError: value cannot be converted to type at::Half without overflow: -1e+10", step=0
    )
    (finding,) = findings("mask-constant-overflow", run)
    assert finding.summary.startswith("The constant -1e+10 does not fit FP16")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("Net.forward", "train.py:7 (`Net.forward`) raised"),
        ("main.<locals>.mask", "train.py:7 (`main.mask`) raised"),
        ("<module>", "train.py:7 raised"),
        (None, "train.py:7 raised"),
    ],
)
def test_the_function_that_raised_is_named(function: str | None, told: str) -> None:
    (finding,) = findings("mask-constant-overflow", raised(RunBuilder(), step=0, error_function=function))
    assert finding.evidence[0].text.startswith(told)


def test_several_lines_are_several_findings() -> None:
    run = raised(raised(RunBuilder(), step=0), step=0, error_line=9)
    assert len(findings("mask-constant-overflow", run)) == 2


def test_fp16_weights_explain_what_is_said_of_them_otherwise() -> None:
    run = RunBuilder().module("head", dtypes=["float16"], step=0)
    run.call("backward", step=0, scaled="all")
    raised(run, FP16_GRADIENTS, "unscale", step=0, target="optimizer0")
    assert diagnose(run.build()).faults[0].name == "unscale-fp16-gradients"


def _window(*calls: str, refused: str = "unscale", error: str = UNSCALED) -> RunBuilder:
    run = RunBuilder()
    for line, call in enumerate(calls, 30):
        target = None if call == "backward" else "optimizer0"
        run.call(call, step=0, target=target, file="train.py", line=line)
    return raised(run, error, refused, step=0, target="optimizer0")


@pytest.mark.parametrize(
    ("calls", "rule"),
    [
        (("backward", "unscale", "backward"), "unscale-twice"),
        (("backward", "unscale"), "unscale-twice"),
        (("backward", "unscale", "scaler_step", "update", "backward", "unscale", "backward"), "unscale-twice"),
        (("backward", "unscale", "zero_grad", "backward"), "scaler-update-missing"),
        (("backward", "unscale", "optimizer_step", "backward"), "scaler-update-missing"),
    ],
)  # fmt: skip
def test_a_second_unscaling_by_what_came_between(calls: tuple[str, ...], rule: str) -> None:
    diagnosis = diagnose(_window(*calls).build())
    assert diagnosis.faults[0].name == rule


def test_two_optimizers_do_not_stand_against_each_other() -> None:
    run = RunBuilder().call("backward", step=0).call("unscale", step=0, target="optimizer1")
    run.call("unscale", step=0, target="optimizer0", line=3, file="train.py").call("backward", step=0)
    raised(run, UNSCALED, "unscale", step=0, target="optimizer0")
    (finding,) = findings("unscale-twice", run)
    assert any("train.py:3" in e.text for e in finding.evidence)


def test_no_inf_checks_tells_what_the_backward_pass_reached() -> None:
    run = RunBuilder().call("backward", step=0, optimizers=["optimizer1"])
    raised(run, "AssertionError: No inf checks were recorded for this optimizer.", "scaler_step", step=0,
           target="optimizer0")  # fmt: skip
    (finding,) = findings("no-inf-checks", run)
    assert any("which reached optimizer1" in e.text for e in finding.evidence)


def test_a_custom_function_without_autocast_is_a_plain_mismatch() -> None:
    error = "RuntimeError: expected scalar type Float but found Half"
    run = raised(RunBuilder(), error, "backward", step=0, custom_function="Own.backward")
    assert findings("custom-function-dtype", run) == []
    (finding,) = findings("dtype-mismatch", run)
    assert finding.severity is Severity.ERROR


def test_an_exception_that_is_no_precision_matter_is_nobodys() -> None:
    run = RunBuilder()
    for error in ("ValueError: stop early", "IndexError: list index out of range", "EarlyStop"):
        raised(run, error, step=0)
    assert diagnose(run.build()).faults == ()


@pytest.mark.parametrize("rule", ["unscale-twice", "scaler-update-missing", "no-inf-checks", "mask-constant-overflow"])
def test_nothing_is_counted_where_there_is_none(rule: str) -> None:
    for example in find_rule(rule).SICK:
        for finding in find_rule(rule)().check(example.build().build()):
            assert [e.text for e in finding.evidence if re.search(r"\b0 (steps|times|calls|backward)", e.text)] == []


def test_what_did_not_come_is_said_and_its_number_kept() -> None:
    (finding,) = findings("mask-constant-overflow", raised(RunBuilder(), step=0))
    told = {e.name: (e.value, e.text) for e in finding.evidence}
    how = "the script caught it and never stepped again"
    assert told["steps_after"] == (0, f"No `optimizer.step()` came after it: {how}.")
