"""One sentence, and never "healthy" where something is left unexplained."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import replace

import pytest

from ampdoctor.finding import Severity
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.verdict import verdict_of
from tests.unit.test_finding import FOUND

NOTE = replace(FOUND, severity=Severity.NOTE)


def _run(*losses: float | None, **info: object) -> RunBuilder:
    run = RunBuilder(**info)
    for loss in losses:
        run.step(loss=loss)
    return run


def test_the_first_fault_is_the_verdict() -> None:
    run = _run(1.0).build()
    assert verdict_of(run, [FOUND]) == "Gradients vanish (gradient-underflow)"
    assert verdict_of(run, [FOUND, FOUND]) == "Gradients vanish (gradient-underflow), and 1 more fault"
    assert verdict_of(run, [FOUND, FOUND, FOUND, NOTE]).endswith(", and 2 more faults")


def test_a_note_is_no_fault() -> None:
    verdict = verdict_of(_run(1.0, 1.0).build(), [NOTE])
    assert verdict == "healthy: no precision fault found in 2 of 2 steps examined"


def test_a_run_that_was_not_examined_is_not_called_healthy() -> None:
    run = RunBuilder().step(examined=False).build()
    assert verdict_of(run, []) == "nothing found in 1 step, of which none was examined"


@pytest.mark.parametrize("end", [math.nan, math.inf, -math.inf])
def test_a_loss_that_ends_nonfinite_is_not_called_healthy(end: float) -> None:
    verdict = verdict_of(_run(1.0, end, end).build(), [])
    assert verdict == "no cause found: the loss is NaN or infinite from step 1 on, and no rule explains it"


def test_one_bad_batch_in_the_middle_is_not_the_end() -> None:
    assert verdict_of(_run(1.0, math.nan, 1.0, None).build(), []).startswith("healthy")


def test_an_exception_of_the_training_is_told() -> None:
    run = _run(1.0, status="crashed", exception="ValueError: Attempting to unscale FP16 gradients.")
    verdict = verdict_of(run.build(), [])
    assert verdict.endswith("; the training ended with ValueError: Attempting to unscale FP16 gradients.")
    assert not verdict.startswith("healthy")


def test_another_rank_that_failed_first_is_told() -> None:
    run = _run(1.0, status="crashed", exception="RuntimeError: Connection closed by peer")
    run.beside(*(_run(1.0).call("exception", error=f"{error}\nmore") for error in ("ValueError: bad row",) * 2))
    verdict = verdict_of(run.build(), [])
    assert verdict.endswith(
        "ended with RuntimeError: Connection closed by peer; ranks 1, 2 ended with ValueError: bad row"
    )


def test_an_exception_that_was_caught_on_another_rank_is_not_told() -> None:
    run = _run(1.0)
    run.beside(_run(1.0).call("backward", error="RuntimeError: caught").call("optimizer_step"))
    assert verdict_of(run.build(), []).startswith("healthy")


def test_a_failed_rule_is_told() -> None:
    run = _run(1.0).build()
    failed = "; could not be judged by lost-updates, which failed"
    assert verdict_of(run, [], ["lost-updates"]) == "no precision fault found in 1 of 1 step examined" + failed
    assert verdict_of(run, [FOUND], ["lost-updates"]).endswith(failed)


def test_a_run_that_never_stepped_is_not_called_healthy() -> None:
    run = RunBuilder()
    for _ in range(20):
        run.step(loss=2.3, found_inf=True, applied=False)
    verdict = verdict_of(run.build(), [])
    assert verdict.startswith("no cause found: none of 20 steps was applied")
    assert verdict_of(run.step(loss=2.3).build(), []).startswith("healthy")


def test_a_run_that_the_recorder_gave_up_is_not_called_healthy() -> None:
    run = _run(1.0, 1.0, status="degraded", degraded="OSError: no space").build()
    assert verdict_of(run, []) == (
        "no precision fault found in 2 of 2 steps examined; the recorder gave up after step 1, and saw nothing of the "
        "rest"
    )


HERE = {"status": "running", "pid": os.getpid(), "host": socket.gethostname()}


def test_a_run_that_goes_on_is_not_called_healthy_yet() -> None:
    verdict = verdict_of(_run(1.0, 1.0, **HERE).build(), [])
    assert verdict == "nothing found so far in 2 of 2 steps examined; the run goes on"
    unexamined = RunBuilder(**HERE).step(examined=False).build()
    assert verdict_of(unexamined, []) == "nothing found so far in 1 step, of which none was examined; the run goes on"
    before = RunBuilder(**HERE).build()
    assert verdict_of(before, []) == "nothing to judge so far: no optimizer step was completed; the run goes on"
    assert verdict_of(_run(1.0, **HERE).build(), [FOUND]) == "Gradients vanish (gradient-underflow)"


def test_of_a_run_on_another_machine_it_is_not_known_whether_it_goes_on() -> None:
    verdict = verdict_of(_run(1.0, **HERE | {"host": "another"}).build(), [])
    assert verdict == "nothing found so far in 1 of 1 step examined; no end of the run was recorded"


def test_a_run_with_accepted_faults_only_is_not_called_healthy() -> None:
    run = _run(1.0, 1.0).build()
    assert verdict_of(run, [], accepted=[FOUND]) == "nothing found beyond 1 accepted finding in 2 of 2 steps examined"
    assert verdict_of(run, [NOTE], accepted=[FOUND, FOUND]).startswith("nothing found beyond 2 accepted findings in")
    assert verdict_of(run, [], accepted=[NOTE]).startswith("healthy")
    assert verdict_of(run, [FOUND], accepted=[FOUND]) == "Gradients vanish (gradient-underflow)"
    broken = _run(1.0, math.nan).build()
    assert verdict_of(broken, [], accepted=[FOUND]) == (
        "nothing found beyond 1 accepted finding: the loss is NaN or infinite from step 1 on"
    )
