"""Which vitals turn."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampdoctor.record.alarms import PLATEAU_WINDOW, SPIKE_WINDOW, Alarms
from ampdoctor.trace.schema import StepRow


def _row(loss: float | None, **columns: Any) -> StepRow:
    values: dict[str, Any] = {"step": 0, "time": 0.0, "wall_ms": 1.0, "micro_batches": 1, "examined": False}
    return StepRow(**(values | {"loss": loss} | columns))


def _kinds(losses: list[float]) -> list[list[str]]:
    alarms = Alarms()
    return [alarms.check(_row(loss)) for loss in losses]


@pytest.mark.parametrize(("found_inf", "expected"), [(True, ["skip"]), (False, []), (None, [])])
def test_a_skip(found_inf: bool | None, expected: list[str]) -> None:
    assert Alarms().check(_row(None, found_inf=found_inf)) == expected


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_nonfinite_loss(loss: float) -> None:
    assert Alarms().check(_row(loss)) == ["nonfinite-loss"]
    assert Alarms().check(_row(loss, found_inf=True)) == ["skip", "nonfinite-loss"]


def test_a_loss_three_times_the_median_is_a_spike() -> None:
    falling = [2.0 - 0.01 * i for i in range(SPIKE_WINDOW)]
    assert _kinds([*falling, 5.0])[-1] == []
    assert _kinds([*falling, 6.0])[-1] == ["loss-spike"]
    # Too little is known before the window is full.
    assert _kinds([*falling[1:], 6.0])[-1] == []


def test_a_nonfinite_loss_does_not_spoil_the_median() -> None:
    falling = [2.0 - 0.01 * i for i in range(SPIKE_WINDOW)]
    assert _kinds([*falling, math.inf, math.nan, 1.9, 6.0])[-2:] == [[], ["loss-spike"]]


@pytest.mark.parametrize("level", [0.0, -1.0])
def test_a_loss_that_is_not_positive_does_not_spike(level: float) -> None:
    falling = [level - 0.01 * i for i in range(SPIKE_WINDOW)]
    assert "loss-spike" not in _kinds([*falling, 6.0])[-1]


def test_a_loss_that_stands_still_is_a_plateau() -> None:
    noise = [2.3 + 0.001 * (-1) ** i for i in range(PLATEAU_WINDOW)]
    kinds = _kinds(noise)
    assert kinds[-1] == ["plateau"]
    assert not any(kinds[:-1])


def test_a_loss_that_falls_slowly_is_none() -> None:
    # Halves of the window differ by 20 * 0.001 of 2.3, that is 0.9 %.
    assert not any(_kinds([2.3 - 0.001 * i for i in range(3 * PLATEAU_WINDOW)]))
