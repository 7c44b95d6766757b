"""What a second opinion left behind that failed midway is not used, whoever asks."""

from __future__ import annotations

import math

import pytest

from ampdoctor.analysis.advice.bf16_costs import bf16_costs
from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.analysis.backward.gradient_range import gradient_range
from ampdoctor.analysis.forward.first_loss import first_born
from ampdoctor.analysis.twins.fp32_finite import finite_in_fp32
from ampdoctor.analysis.twins.measured import latest, measured_steps
from ampdoctor.analysis.twins.opinions import op_rows, twin_rows
from ampdoctor.trace.builder import RunBuilder

LESS = ["too little free memory for bf16, fp16@2^16", "the weights have changed since (x2)"]
LESS.append("the module is gone (x1); an input has been changed in place since (x3)")
FAILED = ["out of memory", "RuntimeError: Cannot access data pointer", "IndexError: row (3) of (x3) "]
FAILED.append("the second opinion failed: RuntimeError: boom")


def _step(run: RunBuilder | None = None) -> RunBuilder:
    """A step whose FP32 twin knows a gradient far larger than all that the run has."""
    run = (run or RunBuilder()).step(loss=2.0)
    run.tensor("head", "grad_output", dtype="float16", exponents={-20: 90}, zeros=10, shape=[10, 10])
    run.tensor(
        "head", "weight_grad", slot="weight", exponents={-20: 90}, zeros=10, shape=[10, 10]
    )  # fmt: skip
    run.twin("run", "", "gradient", flushed=10, nonfinite=1)
    run.twin("run", "head", "weight_grad", flushed=10)
    run.twin("fp32", "", "gradient", absmax=64.0)
    run.twin("fp32", "head", "weight_grad", absmax=64.0, exp_lowest=-20, exp_counts=[100], shape=[10, 10])
    run.op("aten.mm", "head", direction="backward", absmax=128.0, integers_lost=4, born=1)
    return run.op("aten.add", "head", first_born=3, born=1)


@pytest.mark.parametrize("declined", [None, *LESS])
@pytest.mark.parametrize("kind", ["carried", "replay"])
def test_one_that_gave_less_than_planned_counts(kind: str, declined: str | None) -> None:
    run = _step().twin_step("fp32", kind=kind, declined=declined).build()
    assert len(twin_rows(run)) == 4
    assert finite_in_fp32(run, 0) is True


@pytest.mark.parametrize("declined", FAILED)
@pytest.mark.parametrize("kind", ["carried", "replay"])
def test_rows_of_one_that_failed_midway_are_not_used(kind: str, declined: str) -> None:
    run = _step().twin_step("fp32", kind=kind, declined=declined).build()
    assert twin_rows(run) == ()
    assert measured_steps(run) == ()
    assert latest(run) is None
    recorded = recorded_step(run)
    assert recorded.twins == ()
    assert not recorded.backward.weights[0].seen
    assert what_if(recorded).total.measured is None


def test_nor_are_the_operations_it_looked_at() -> None:
    run = _step().twin_step("fp32", declined="out of memory").build()
    assert op_rows(run) == ()
    assert finite_in_fp32(run, 0) is None
    assert first_born(run, 0) is None
    assert bf16_costs(run) == []
    found = gradient_range(run)
    assert found is not None
    assert found.peak.value == 2.0**-20


def test_the_other_steps_count_all_the_same() -> None:
    run = _step(_step().twin_step("fp32")).twin_step("fp32", declined="out of memory")
    run.step()
    assert {row.step for row in twin_rows(run.build())} == {0}
    assert {row.step for row in op_rows(run.build())} == {0}


def test_a_carried_one_that_broke_spoils_what_a_replay_of_the_same_step_adds() -> None:
    run = _step().twin_step("fp32", declined="out of memory")
    run.twin_step("fp32", kind="replay", confirmed=True).op("aten.mm", source="replay")
    built = run.build()
    assert twin_rows(built) == ()
    assert [row.source for row in op_rows(built)] == ["replay"]


def test_one_that_never_began_spoils_nothing() -> None:
    run = _step().twin_step("fp32")
    run.twin_step(kind="replay", declined="too little memory for a copy", operations=0)
    assert len(twin_rows(run.build())) == 4


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan, 0.0, -2.0])
def test_at_a_loss_scale_that_is_none_nothing_was_measured(scale: float) -> None:
    run = RunBuilder().step().twin_step("fp32").twin("run", "", "gradient", loss_scale=scale)
    assert twin_rows(run.twin("run", "a", "weight_grad", loss_scale=2.0).build())[0].module == "a"
