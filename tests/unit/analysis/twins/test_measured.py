"""What twin steps measured of the whole gradient, read from traces that hold all, some or nothing of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.analysis.twins.measured import cosine_text, latest, measured_steps, wrong_share
from ampdoctor.trace.builder import RunBuilder


def _twin(run: RunBuilder, setting: str = "run", **columns: Any) -> RunBuilder:
    return run.twin(setting, "", "gradient", **columns)


def test_a_run_without_twins_has_nothing_measured() -> None:
    run = RunBuilder().step(loss=2.3).build()
    assert measured_steps(run) == ()
    assert latest(run) is None


def test_a_declined_step_has_no_measurement() -> None:
    run = RunBuilder().step().twin_step(declined="too little memory").build()
    assert measured_steps(run) == ()


def test_the_last_step_that_was_measured_is_the_latest() -> None:
    run = RunBuilder()
    for flushed in (0, 18, 5):
        _twin(run.step().twin_step("fp32"), flushed=flushed)
    step = latest(run.build())
    assert step is not None
    assert step.step == 2


def test_before_and_after_are_one_phrase() -> None:
    run = _twin(RunBuilder().step(), flushed=37, nonzero=200, cosine=0.71, norm_ratio=0.8)
    _twin(run, "bf16", cosine=0.9999)
    _twin(run, "fp16@2^20", nonfinite=3, overflowed=3, cosine=None, norm_ratio=None)
    (step,) = measured_steps(run.build())
    assert step.before_after("bf16") == "flushed 18.5 % → 0 %, cosine 0.71 → 0.9999"
    assert step.before_after("fp16@2^20") is None
    assert step.before_after("fp16@2^10") is None
    assert [m.name for m in step.others] == ["bf16"]
    assert step.run is not None
    assert step.run.phrase == "flushed 18.5 %, cosine 0.71"


def test_without_the_runs_own_row_nothing_is_said_of_the_run() -> None:
    run = _twin(RunBuilder().step(), "bf16").build()
    (step,) = measured_steps(run)
    assert step.run is None
    assert step.before_after("bf16") is None
    assert latest(run) is None


@pytest.mark.parametrize("side", ["nonfinite", "nonfinite_fp32"])
def test_what_is_not_finite_is_not_compared(side: str) -> None:
    columns: dict[str, Any] = {side: 1, "cosine": None, "norm_ratio": None}
    run = _twin(RunBuilder().step(), **columns).build()
    (step,) = measured_steps(run)
    assert step.run is None
    assert wrong_share(step.settings["run"].gradient) is None


def test_the_step_as_a_whole_goes_before_its_micro_batches() -> None:
    run = RunBuilder().step()
    for micro_batch, flushed in ((0, 50), (1, 60), (None, 7)):
        _twin(run, flushed=flushed, micro_batch=micro_batch)
        run.twin("run", "", "loss", micro_batch=micro_batch, value=float(flushed))
        run.twin("run", "head", "weight_grad", micro_batch=micro_batch, flushed=flushed)
    (step,) = measured_steps(run.build())
    assert step.run is not None
    assert step.run.flushed == 0.07
    assert step.run.loss == 7.0
    assert [r.flushed for r in step.run.weights] == [7]


@pytest.mark.parametrize(("confirmed", "seen"), [(True, 1), (None, 1), (False, 0)])
def test_a_replay_that_came_out_otherwise_is_left_out(confirmed: bool | None, seen: int) -> None:
    run = _twin(RunBuilder().step().twin_step("fp32", kind="replay", confirmed=confirmed))
    assert len(measured_steps(run.build())) == seen


def test_a_carried_twin_stands_beside_a_replay_that_failed() -> None:
    run = RunBuilder().step().twin_step("fp32").twin_step(kind="replay", confirmed=False)
    assert len(measured_steps(_twin(run).build())) == 1


@pytest.mark.parametrize(
    ("cosine", "norm_ratio", "wrong"),
    [(1.0, 1.0, 0.0), (0.8, 0.8, 0.36), (1.0, 0.9, 0.01), (None, 0.0, 1.0), (None, None, None)],
    ids=["equal", "orthogonal part gone", "shorter", "all gone", "nothing in FP32"],
)
def test_the_wrong_share_is_the_energy_of_the_difference(
    cosine: float | None, norm_ratio: float | None, wrong: float | None
) -> None:
    run = _twin(RunBuilder().step(), cosine=cosine, norm_ratio=norm_ratio).build()
    (step,) = measured_steps(run)
    found = wrong_share(step.settings["run"].gradient)
    assert found is wrong or math.isclose(found or 0.0, wrong or 0.0, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("cosine", "text"), [(0.71, "0.71"), (0.9999, "0.9999"), (0.99973, "0.9997"), (1.0, "1"), (-0.3, "-0.3")]
)
def test_a_cosine_never_rounds_to_one(cosine: float, text: str) -> None:
    assert cosine_text(cosine) == text
    assert cosine_text(1.0 - 1e-9) == "> 0.999999"
