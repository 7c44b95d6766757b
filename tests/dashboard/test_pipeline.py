"""Which station a rule lights, what is out of order among calls, and what is known of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.finding import Confidence, Finding, Grade, Location, Severity
from ampdoctor.rules import discover
from ampdoctor.trace.builder import RunBuilder
from ampdoctor_dashboard.data import call_order
from ampdoctor_dashboard.data.op_classes import class_of, ran_in
from ampdoctor_dashboard.data.pipeline import StepFacts, default_step, step_facts
from ampdoctor_dashboard.data.stations import STATION_OF, Station, findings_at
from ampdoctor_dashboard.widgets.station import BAD, GOOD, UNKNOWN, UNUSED, WARN
from ampdoctor_dashboard.widgets.stations import station_of
from ampdoctor_dashboard.words import Words
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path

WORDS = Words()


def test_every_rule_has_its_station() -> None:
    rules = {rule.name for rule in discover()}
    assert rules - set(STATION_OF) == set(), "add them to dashboard/data/stations.py"
    assert set(STATION_OF) - rules == set(), "there are no such rules"


def _order(*calls: str, **columns: object) -> list[call_order.Made]:
    builder = RunBuilder().step()
    for call in calls:
        builder.call(call, **(columns if call == "backward" else {}))
    return call_order.made(call_order.calls_of(builder.build().calls))


def _wrong(*calls: str, **columns: object) -> dict[str, str]:
    return {made.call: made.wrong for made in _order(*calls, **columns) if made.wrong}


@pytest.mark.parametrize(
    ("calls", "wrong"),
    [
        (("zero_grad", "scale", "backward", "unscale", "clip_norm", "scaler_step", "update"), {}),
        (("zero_grad", "backward", "clip_norm", "optimizer_step"), {}),
        (("scale", "backward", "scaler_step", "update", "zero_grad"), {}),
        (("scale", "backward", "clip_norm", "unscale", "scaler_step", "update"), {"clip_norm": call_order.CLIP_SCALED}),
        (("scale", "backward", "clip_norm", "scaler_step", "update"), {"clip_norm": call_order.CLIP_SCALED}),
        (("scale", "backward", "unscale", "unscale", "scaler_step"), {"unscale": call_order.UNSCALED_TWICE}),
        (("backward", "zero_grad", "optimizer_step"), {"zero_grad": call_order.LOST_ZERO}),
        (("backward", "optimizer_step", "optimizer_step"), {"optimizer_step": call_order.TWICE}),
        (("scale", "backward", "update", "scaler_step"), {"update": call_order.EARLY_UPDATE}),
        (("scale", "backward", "unscale", "backward", "scaler_step"), {"unscale": call_order.EARLY_UNSCALE}),
    ],
)  # fmt: skip
def test_calls_out_of_place_are_marked(calls: tuple[str, ...], wrong: dict[str, str]) -> None:
    assert _wrong(*calls) == wrong


def test_steps_past_the_scaler_and_unscaled_losses_are_marked() -> None:
    assert _wrong("scale", "backward", "optimizer_step", scaled="all") == {"optimizer_step": call_order.BYPASSED}
    assert _wrong("backward", "scaler_step", "update", scaled="none") == {"backward": call_order.UNSCALED}


def test_schedule_that_moves_on_a_skipped_step_is_marked() -> None:
    calls = RunBuilder().step().call("scheduler_step").build().calls
    assert call_order.made(calls, applied=False)[0].wrong == call_order.SKIPPED_SCHEDULE
    assert call_order.made(calls, applied=True)[0].wrong == ""


def test_micro_batches_are_told_once() -> None:
    order = _order("zero_grad", "scale", "backward", "scale", "backward", "scale", "backward", "scaler_step", "update")
    assert [(made.call, made.times) for made in order] == [
        ("zero_grad", 1), ("scale", 3), ("backward", 3), ("scaler_step", 1), ("update", 1)
    ]  # fmt: skip


def test_right_order_names_what_is_missing() -> None:
    calls = RunBuilder().step().call("scale").call("backward").call("optimizer_step").build().calls
    wanted = {call.call: call.made for call in call_order.right_order(calls)}
    assert wanted == {"zero_grad": False, "scale": True, "backward": True, "scaler_step": False, "update": False}


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten.mm", "matmul"), ("aten.addmm", "matmul"), ("aten.convolution", "matmul"), ("aten._softmax", "softmax"),
        ("aten.native_layer_norm", "norm"), ("aten.nll_loss_forward", "loss"), ("aten._log_softmax", "softmax"),
        ("aten._scaled_dot_product_flash_attention_for_cpu", "attention"), ("aten.gelu", "nonlinearity"),
        ("aten.sum", "sum"), ("aten.view", None), ("aten.t", None), ("profiler._record_function_exit", None),
        ("aten.add", "elementwise"), ("aten.embedding", "embedding"), ("aten._to_copy", "cast"),
    ],
)  # fmt: skip
def test_operations_have_their_class(op: str, kind: str | None) -> None:
    assert class_of(op) == kind


def test_classes_tell_their_dtypes() -> None:
    run = RunBuilder().step().timing("aten.mm", dtype_in="float16", calls=3).timing("aten.view").build()
    assert [tuple(row) for row in ran_in(run.timings)] == [("matmul", "float16", 3)]


def _scaled_step() -> RunBuilder:
    builder = RunBuilder().module("head").optimizer().step(loss=2.0, loss_scale=1024.0, found_inf=True, applied=False)
    builder.scaler("seen", enabled=True, growth_interval=2000, growth_factor=2.0, backoff_factor=0.5)
    builder.tensor("head", "weight", slot="weight", exponents={-5: 10, 2: 1})
    builder.tensor("head", "activation", dtype="float16", exponents={3: 10}, autocast="float16")
    builder.tensor("head", "grad_output", dtype="float16", exponents={-20: 5}, posinf=5, loss_scale=1024.0)
    builder.tensor("head", "weight_grad", slot="weight", exponents={}, posinf=10, loss_scale=1024.0)
    builder.call("zero_grad").call("scale").call("backward").call("scaler_step").call("update")
    return builder.scaler("backoff", scale=1024.0, scale_after=512.0)


def test_a_skipped_step_is_told_station_by_station(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", _scaled_step())
    facts = step_facts(run, 0)
    shown = {station: station_of(station, facts, (), WORDS) for station in Station}
    assert facts.half == "float16"
    assert facts.scale == 1024.0
    assert (facts.of("weight")[0].lowest, facts.of("weight")[0].highest) == (-5, 2)
    assert {station: s.health for station, s in shown.items()} == {
        Station.WEIGHTS: GOOD, Station.CAST: GOOD, Station.FORWARD: GOOD, Station.LOSS: GOOD, Station.SCALE: GOOD,
        Station.BACKWARD: BAD, Station.UNSCALE: GOOD, Station.CLIP: UNUSED, Station.CHECK: WARN, Station.STEP: WARN,
        Station.UPDATE: WARN,
    }  # fmt: skip
    assert shown[Station.FORWARD].facts[0].value == "12"  # FP16's largest binade is 15
    assert shown[Station.UPDATE].facts[0].value == "1024 → 512"


@pytest.mark.parametrize(
    ("dtype", "why"), [("bfloat16", "BF16 has FP32's range and needs no loss scale"), ("float32", "FP32 needs no")]
)
def test_runs_without_a_scaler_say_why(tmp_path: Path, dtype: str, why: str) -> None:
    builder = RunBuilder().step().tensor("head", "activation", dtype=dtype, exponents={0: 4})
    facts = step_facts(opened(tmp_path / "run", builder), 0)
    for station in (Station.SCALE, Station.UPDATE, Station.CHECK):
        shown = station_of(station, facts, (), WORDS)
        assert shown.health == UNUSED
        assert why in shown.says


def test_half_weights_have_no_master_copies(tmp_path: Path) -> None:
    builder = RunBuilder().module("head").optimizer(dtypes=["bfloat16"]).step()
    facts = step_facts(opened(tmp_path / "run", builder), 0)
    shown = station_of(Station.WEIGHTS, facts, (), WORDS)
    assert shown.health == WARN
    assert "no FP32 master weights" in shown.says


def test_what_was_not_recorded_is_no_fault(tmp_path: Path) -> None:
    facts = step_facts(opened(tmp_path / "run", RunBuilder().step(examined=False)), 0)
    shown = station_of(Station.BACKWARD, facts, (), WORDS)
    assert shown.health == UNKNOWN
    assert "was not examined" in shown.says


def _finding(name: str, *, first: int = 0, last: int | None = None, consequences: tuple[Finding, ...] = ()) -> Finding:
    return Finding(
        "AMP000", name, Severity.ERROR, "it is wrong", Confidence.HIGH, Grade.OBSERVED,
        Location(first_step=first, last_step=last), consequences=consequences,
    )  # fmt: skip


def _facts(tmp_path: Path) -> StepFacts:
    builder = RunBuilder()
    for _ in range(3):
        builder.step().tensor("head", "grad_output", exponents={0: 4})
    return step_facts(opened(tmp_path / "run", builder), 2)


def test_a_finding_lights_its_station_on_its_steps(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    assert station_of(Station.BACKWARD, facts, [_finding("gradient-underflow")], WORDS).health == BAD
    assert station_of(Station.BACKWARD, facts, [_finding("gradient-underflow", last=1)], WORDS).health == GOOD


def test_consequences_have_stations_too() -> None:
    at = findings_at([_finding("activation-overflow", consequences=(_finding("scale-collapse"),))])
    assert [f.name for f in at[Station.FORWARD]] == ["activation-overflow"]
    assert [f.name for f in at[Station.UPDATE]] == ["scale-collapse"]


def test_the_step_of_the_worst_finding_is_shown(tmp_path: Path) -> None:
    builder = RunBuilder()
    for examined in (True, False, True, True):
        builder.step(examined=examined)
    run = opened(tmp_path / "run", builder)
    assert default_step(run, ()) == 3
    assert default_step(run, (_finding("gradient-underflow", first=1),)) == 2
