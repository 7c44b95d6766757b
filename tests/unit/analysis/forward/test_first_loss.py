"""Where values are lost first and where inf or NaN is born, from the operations that local twins looked at."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.analysis.forward.first_loss import first_born, first_lost
from ampdoctor.analysis.twins.fp32_finite import finite_in_fp32, first_overflow, largest_gradient, overflows_made
from ampdoctor.trace.builder import RunBuilder


def _born(run: RunBuilder, order: int, born_fp32: int = 0, op: str = "aten.mm", **columns: Any) -> RunBuilder:
    values = {"born": 10, "born_fp32": born_fp32, "first_born": order, "absmax": 1e5}
    return run.op(op, "down", **(values | columns))


def test_the_first_loss_is_by_order_and_not_by_row() -> None:
    run = RunBuilder().step()
    run.op("aten.mm", "head", first_lost=9, flushed=5, energy_lost=0.2, direction="backward")
    run.op(
        "aten.mm", "encoder.ffn", first_lost=7, flushed=5, energy_lost=1e-6, direction="backward",
        file="project/train.py", line=41,
    ).op("aten._softmax", "attention", first_lost=3, flushed=5)  # fmt: skip
    built = run.build()
    first = first_lost(built, 0)
    assert first is not None
    assert first.phrase == "`aten._softmax` at `attention`, forward"
    backward = first_lost(built, 0, "backward")
    assert backward is not None
    assert backward.phrase == "`aten.mm` at `encoder.ffn` (train.py:41), backward"
    assert backward.source == "project/train.py:41"
    material = first_lost(built, 0, "backward", 0.01)
    assert material is not None
    assert material.row.module == "head"
    assert first_lost(built, 1) is None


def test_outside_any_module_is_said() -> None:
    run = RunBuilder().step().op("aten.add", first_lost=1, absorbed=5).build()
    first = first_lost(run, 0)
    assert first is not None
    assert first.phrase == "`aten.add` outside any module, forward"
    assert first.source is None


@pytest.mark.parametrize("source", ["live", "replay"])
def test_the_first_birth_is_found_on_live_and_replayed_steps(source: str) -> None:
    late = _born(RunBuilder().step().step(), 9, source=source)
    birth = first_born(_born(late, 4, op="aten.pow", source=source).build(), 1)
    assert birth is not None
    assert birth.row.op == "aten.pow"


def test_of_a_step_that_was_seen_live_the_replay_adds_nothing() -> None:
    """It executes the modules alone; the order of its operations is another one."""
    run = _born(_born(RunBuilder().step().step(), 9), 4, op="aten.pow", source="replay").build()
    birth = first_born(run, 1)
    assert birth is not None
    assert birth.row.source == "live"
    assert first_born(run, 0) is None


@pytest.mark.parametrize(("born_fp32", "finite"), [(0, True), (10, False), (4, None)])
def test_fp32_is_finite_there_or_not_or_in_part(born_fp32: int, finite: bool | None) -> None:
    run = _born(RunBuilder().step(), 1, born_fp32).build()
    assert finite_in_fp32(run, 0) is finite


def test_of_a_step_that_nobody_looked_at_nothing_is_said() -> None:
    assert finite_in_fp32(RunBuilder().step().build(), 0) is None


def test_a_birth_that_fp32_shares_may_have_harmed_nobody() -> None:
    run = _born(_born(RunBuilder().step(), 1, 10, "aten.log"), 5).build()
    assert finite_in_fp32(run, 0) is None


@pytest.mark.parametrize(
    ("op", "born_fp32", "absmax"),
    [("aten.masked_fill.Scalar", 10, 1.0), ("aten._to_copy", 0, 3.4e38), ("aten.full", 0, 1e9)],
)
def test_the_infinities_of_a_mask_are_no_birth(op: str, born_fp32: int, absmax: float) -> None:
    run = _born(RunBuilder().step(), 1, born_fp32, op, absmax=absmax).build()
    assert first_born(run, 0) is None
    later = _born(_born(RunBuilder().step(), 1, born_fp32, op, absmax=absmax), 8).build()
    assert finite_in_fp32(later, 0) is True


def test_an_ordinary_cast_may_overflow() -> None:
    run = _born(RunBuilder().step(), 1, op="aten._to_copy").build()
    assert first_overflow(run, 0, "forward") is not None


def _carried(nonfinite: int, nonfinite_fp32: int, weights: dict[str, Any] | None) -> RunBuilder:
    run = RunBuilder().step().twin_step("fp32")
    run.twin("run", "", "gradient", nonfinite=nonfinite, nonfinite_fp32=nonfinite_fp32)
    if weights is not None:
        run.tensor("body", "weight", slot="weight", exponents={0: 9}, **weights)
    return run


@pytest.mark.parametrize(
    ("nonfinite", "nonfinite_fp32", "weights", "finite"),
    [(5, 0, None, True), (5, 5, {}, False), (5, 5, None, None), (5, 5, {"nan": 1}, None), (0, 0, {}, None)],
    ids=["FP32 finite", "nor FP32", "weights unknown", "weights broken", "nothing failed"],
)
def test_the_carried_twin_tells_unless_the_weights_may_be_broken(
    nonfinite: int, nonfinite_fp32: int, weights: dict[str, Any] | None, finite: bool | None
) -> None:
    assert finite_in_fp32(_carried(nonfinite, nonfinite_fp32, weights).build(), 0) is finite


def test_the_carried_twin_is_heard_before_an_operation_by_itself() -> None:
    # An epsilon that FP16 flushed: from the run's own zero FP32 divides by zero as well.
    run = _born(_carried(5, 0, {}), 1, 10, "aten.div").build()
    assert finite_in_fp32(run, 0) is True


def test_a_replay_that_came_out_otherwise_is_left_out() -> None:
    run = RunBuilder().step().twin_step(kind="replay", confirmed=False)
    assert first_born(_born(run, 1, source="replay").build(), 0) is None
    live = RunBuilder().step().twin_step(kind="replay", confirmed=False)
    assert first_born(_born(live, 1).build(), 0) is not None


@pytest.mark.parametrize(
    ("columns", "overflows"),
    [
        ({}, True),
        ({"dtype_out": "bfloat16"}, False),
        ({"absmax": 12.0}, False),
        ({"born_fp32": 10}, False),
        ({"direction": "backward"}, False),
        ({"dtype_out": "float16,float32"}, True),
    ],
)
def test_an_overflow_is_beyond_fp16_and_finite_in_fp32(columns: dict[str, Any], overflows: bool) -> None:
    run = _born(RunBuilder().step(), 1, **columns).build()
    assert (first_overflow(run, 0, "forward") is not None) is overflows
    assert bool(overflows_made(run, [0], "forward")) is overflows


def test_overflows_after_the_weights_broke_are_left_out() -> None:
    run = RunBuilder().step().tensor("body", "weight", slot="weight", nan=1)
    assert overflows_made(_born(run, 1).build(), [0], "forward") == []


def test_the_largest_gradient_is_that_of_fp16_results_going_back() -> None:
    run = RunBuilder().step().op("aten.mm", absmax=9.0, direction="backward")
    run.op("aten.mm", absmax=99.0).op("aten.mm", absmax=999.0, direction="backward", dtype_out="float32")
    assert largest_gradient(run.build(), 0) == 9.0
    assert largest_gradient(run.build(), 1) == 0.0


def test_infinities_that_a_finite_step_makes_too_are_meant() -> None:
    """A causal mask as the logarithm of zeros and ones: the same line of a step that is lost has not lost it."""
    run = RunBuilder()
    for loss in (2.3, math.nan):
        _born(run.step(loss=loss), 1, born_fp32=10, op="aten.log", absmax=0.0)
    _born(run, 2, born_fp32=10, op="aten.div")
    built = run.build()
    assert first_born(built, 0) is None
    found = first_born(built, 1)
    assert found is not None
    assert found.row.op == "aten.div"


def test_a_step_that_is_lost_does_not_say_what_is_meant() -> None:
    run = RunBuilder()
    for loss in (math.nan, None):
        _born(run.step(loss=loss), 1, born_fp32=10, op="aten.log", absmax=0.0)
    built = run.build()
    assert first_born(built, 0) is not None
    assert first_born(built, 1) is not None
