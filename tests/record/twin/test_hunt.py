"""A loss that is NaN now and then: the steps after it are looked at until it happens again, and no longer."""

from __future__ import annotations

import math

from ampdoctor.record.twin.hunt import SECONDS, STEPS, Hunt
from ampdoctor.trace.builder import RunBuilder


def test_it_begins_with_a_loss_that_nothing_explains_and_ends_with_one_that_was_seen() -> None:
    hunt = Hunt()
    assert not hunt.wanted()
    hunt.learn([])
    hunt.alarm("nonfinite-loss")
    assert hunt.wanted()
    run = RunBuilder().step().twin("run", "", "loss", value=math.nan).build()
    hunt.learn([("twins", row) for row in run.twins])
    assert not hunt.wanted()


def test_what_made_the_nan_was_seen_already() -> None:
    hunt = Hunt()
    run = RunBuilder().step().op("aten.div", born=3).build()
    hunt.learn([("ops", row) for row in run.ops])
    hunt.alarm("nonfinite-loss")
    assert not hunt.wanted()


def test_other_alarms_are_none() -> None:
    hunt = Hunt()
    hunt.alarm("skip")
    assert not hunt.wanted()


def test_it_has_an_end_in_steps_and_in_time() -> None:
    hunt = Hunt()
    hunt.alarm("nonfinite-loss")
    assert sum(hunt.wanted() for _ in range(2 * STEPS)) == STEPS
    hunt = Hunt()
    hunt.alarm("nonfinite-loss")
    hunt.took(SECONDS + 1.0)
    assert not hunt.wanted()
