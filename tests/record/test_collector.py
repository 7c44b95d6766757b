"""The garbage collector waits during a step of many objects, and is the user's again after it."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

from ampdoctor.record.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector has no generations any more")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


class _Knot:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_it_waits_for_one_step_and_then_looks() -> None:
    gc.set_threshold(50, 3, 10)
    collector = Collector()
    collector.turn(many=True)
    assert gc.get_threshold()[0] == 500  # nine of ten objects are ours
    knots = [_Knot() for _ in range(5000)]
    assert gc.get_count()[1] > 3
    knot = weakref.ref(knots.pop())
    knots.clear()
    assert knot() is not None
    collector.turn(many=True)
    assert knot() is None
    assert gc.get_count()[1] <= 3
    collector.let_go()
    assert gc.get_threshold() == (50, 3, 10)


def test_a_step_of_few_objects_is_the_users() -> None:
    before = gc.get_threshold()
    collector = Collector()
    collector.turn(many=False)
    assert gc.get_threshold() == before
    collector.turn(many=True)
    collector.turn(many=False)
    assert gc.get_threshold() == before


def test_what_the_user_sets_meanwhile_stays() -> None:
    collector = Collector()
    collector.turn(many=True)
    gc.set_threshold(1000, 11, 12)
    collector.let_go()
    assert gc.get_threshold() == (1000, 11, 12)


def test_a_collector_that_the_user_has_switched_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.disable()
    collector = Collector()
    collector.turn(many=True)
    assert gc.get_threshold() == before
    collector.let_go()
    assert not gc.isenabled()


@pytest.mark.parametrize("youngest", [2**31 - 1, 2**28, 0])
def test_whatever_the_user_has_set_it_is_put_back(youngest: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(youngest, 7, 9)
    try:
        collector = Collector()
        collector.turn(many=True)
        collector.let_go()
        assert gc.get_threshold() == (youngest, 7, 9)
    finally:
        gc.set_threshold(*before)


def test_two_at_a_time_leave_it_as_it_was() -> None:
    before = gc.get_threshold()
    one, other = Collector(), Collector()
    for _ in range(12):
        one.turn(many=True)
        other.turn(many=True)
    one.let_go()
    other.let_go()
    assert gc.get_threshold() == before
