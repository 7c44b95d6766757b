"""What a run comes to: what was not measured is not there, and never 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.finding import Grade
from ampdoctor.gate.readings import WHOLE, read_metrics
from ampdoctor.trace.builder import RunBuilder
from tests.unit.gate.runs import built

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def whole(run: Run) -> dict[str, float]:
    return {r.metric: r.value for r in read_metrics(run) if r.site == WHOLE}


def test_of_an_empty_run_nothing_is_known() -> None:
    assert read_metrics(RunBuilder().build()) == []


def test_of_steps_alone_only_what_they_tell() -> None:
    run = RunBuilder().step(examined=False, loss=1.0).step(examined=False, applied=False, loss=math.inf).build()
    assert whole(run) == {"skipped": 0.5, "nonfinite_loss": 0.5, "step_ms": 10.0}


def test_numbers_are_those_of_the_rows() -> None:
    known = whole(built(flushed=20, subnormal=30, skipped=5, scale=2.0**-3, cosine=0.5, nan_losses=4).build())
    assert known["flushed"] == pytest.approx(0.2)
    assert known["subnormal"] == pytest.approx(0.3)
    assert known["skipped"] == pytest.approx(0.25)
    assert known["min_scale"] == -3.0
    assert known["cosine"] == 0.5
    assert known["nonfinite_loss"] == pytest.approx(0.2)


def _twin(**gradient: Any) -> dict[str, float]:
    builder = RunBuilder().step().twin_step("run", "fp32").twin("run", "", "gradient", **gradient)
    return whole(builder.build())


def test_a_gradient_of_which_nothing_is_left_is_as_far_off_as_can_be() -> None:
    assert _twin(cosine=None, norm_ratio=0.0, flushed=100)["cosine"] == 0.0
    assert "cosine" not in _twin(cosine=None, norm_ratio=None, nonfinite=100)


def test_grades_and_sites_are_kept() -> None:
    readings = {(r.metric, r.site): r for r in read_metrics(built(flushed=20).build())}
    assert readings["flushed", "a.weight"].grade is Grade.MEASURED
    assert readings["subnormal", "a.out"].grade is Grade.OBSERVED
    assert readings["memory", "activations"].value == 1 << 24


def test_a_loss_scale_of_a_skipped_step_is_not_counted() -> None:
    run = RunBuilder().step(applied=False, loss_scale=2.0).step(loss_scale=8.0).build()
    assert whole(run)["min_scale"] == 3.0


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_the_worst_rank_counts_whatever_the_order(order: tuple[int, ...]) -> None:
    ranks: list[dict[str, Any]] = [{}, {"skipped": 5, "cosine": 0.5}, {"nan_losses": 3}]
    first, *others = (built(**ranks[rank]) for rank in order)
    first.beside(*others)
    known = whole(first.build())
    assert (known["skipped"], known["cosine"], known["nonfinite_loss"]) == (0.25, 0.5, 0.15)
