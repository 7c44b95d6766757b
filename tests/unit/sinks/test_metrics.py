"""The numbers of a step: those of the trace and of the rules, and none where nothing was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.analysis.twins.measured import measured_steps
from ampdoctor.sinks.metrics import COLUMNS, Summaries
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.sinks.base import StepMetrics
    from ampdoctor.trace.run import Run


def _of(run: Run) -> list[StepMetrics]:
    return list(Summaries().of(run))


def _values(builder: RunBuilder) -> dict[str, float]:
    (only,) = _of(builder.build())
    return {name.removeprefix("ampdoctor/"): value for name, value in only.values.items()}


def test_what_was_not_measured_is_not_there() -> None:
    assert set(_values(RunBuilder().step(applied=None))) == {"wall_ms"}


def test_every_metric_is_ours_by_name() -> None:
    (only,) = _of(RunBuilder().step(loss=1.0).tensor("a", "weight_grad", exponents={0: 1}).build())
    assert all(name.startswith("ampdoctor/") for name in only.values)


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_come_as_they_are(column: str) -> None:
    assert _values(RunBuilder().step(**{column: 3}))[column] == 3.0


def test_a_loss_that_is_nan_is_told() -> None:
    assert math.isnan(_values(RunBuilder().step(loss=math.nan))["loss"])


def test_skipped_steps_add_up_over_stretches() -> None:
    builder = RunBuilder()
    for applied in (True, False, None, False):
        builder.step(applied=applied)
    summaries = Summaries()
    counted = [
        m.values.get("ampdoctor/skipped_steps") for _ in range(2) for m in summaries.of(builder.build())
    ]  # fmt: skip
    assert counted == [0, 1, None, 2, 2, 3, None, 4]


def test_gradients_are_counted_over_all_sites() -> None:
    builder = RunBuilder().step()
    builder.tensor("a", "weight_grad", zeros=3, exponents={2: 1}).tensor("b", "grad_output", exponents={5: 4}, nan=2)
    builder.tensor("b", "activation", exponents={9: 1}, zeros=7, posinf=1)
    values = _values(builder)
    assert values["gradient_zero_share_observed"] == pytest.approx(3 / 10)
    assert values["gradient_absmax"] == 32.0
    assert values["gradient_nonfinite_elements"] == 2
    assert values["activation_nonfinite_elements"] == 1


def test_a_run_in_fp32_has_no_flushed_share() -> None:
    values = _values(RunBuilder().step().tensor("a", "weight_grad", exponents={0: 4}))
    assert not any("flushed" in name or "lost" in name for name in values)


@pytest.mark.parametrize("name", ["bert_fp16_collapse", "bert_fp16_scaled", "bert_bf16"])
def test_shares_are_those_that_the_report_goes_by(repository: Path, name: str) -> None:
    run = open_run(repository / "sample_runs" / name)
    told = {m.step: m.values for m in _of(run)}
    for step in (row.step for row in run.steps if row.examined):
        estimated = what_if(recorded_step(run, step)).total.estimated
        assert told[step].get("ampdoctor/gradient_flushed_share_estimated") == estimated
    for twins in measured_steps(run):
        assert twins.run is not None
        assert told[twins.step]["ampdoctor/gradient_flushed_share_measured"] == twins.run.flushed


def test_the_worst_site_of_a_collapsed_run_has_lost_all(repository: Path) -> None:
    told = _of(open_run(repository / "sample_runs" / "bert_fp16_collapse"))
    lost = [m.values.get("ampdoctor/worst_site_lost_energy_share_measured") for m in told]
    assert {share for share in lost if share is not None} == {1.0}
    assert lost[3] is None  # a step that was not examined
