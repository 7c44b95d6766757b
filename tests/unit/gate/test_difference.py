"""What changed between two runs, worst first."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.gate.difference import Difference, Direction, difference_of
from ampdoctor.report import difference as report
from tests.unit.gate.runs import built, judged


def changed(before: dict[str, Any], now: dict[str, Any]) -> Difference:
    return difference_of(judged(built(**before).build()), judged(built(**now).build()))


def test_the_same_run_does_not_differ() -> None:
    found = changed({}, {})
    assert {change.direction for change in found.changes} == {Direction.SAME}
    assert report.sentence(found) == "no difference beyond noise"


def test_what_got_worst_comes_first() -> None:
    found = changed({}, {"flushed": 50, "cosine": 0.98, "subnormal": 0, "wall_ms": 100.0})
    directions = [change.direction for change in found.changes]
    assert directions == sorted(directions, key=[Direction.WORSE, Direction.SAME, Direction.BETTER].index)
    assert (found.changes[0].metric.name, found.changes[0].site) == ("step_ms", "")  # 36 times what is worth a word
    assert (
        report.sentence(found)
        == "worse: step time, flushed gradient, gradient cosine to FP32; better: subnormal gradient"
    )


@pytest.mark.parametrize(("low", "high"), [({}, {"flushed": 30}), ({"memory": 1 << 24}, {"memory": 1 << 26})])
def test_the_other_way_round_it_is_better(low: dict[str, Any], high: dict[str, Any]) -> None:
    there, back = changed(low, high), changed(high, low)
    assert {c.metric.name for c in there.changes if c.direction is Direction.WORSE} == {
        c.metric.name for c in back.changes if c.direction is Direction.BETTER
    }


def test_machines_and_sites_are_told() -> None:
    found = changed({}, {"device": "cuda", "modules": ("a", "c")})
    assert found.machines == (("device", "cpu", "cuda"),)
    assert found.new_sites == ("c.out", "c.weight")
    page = report.page(found).plain()
    assert "device: cpu, now cuda" in page
    assert "New sites  c.out, c.weight" in page
    assert "device: cpu, now cuda" in report.markdown(found)
