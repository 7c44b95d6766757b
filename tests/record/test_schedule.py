"""Which steps are examined."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.schedule import BURST_STEPS, FIRST_PAUSE, FREE_SECONDS, Schedule
from tests.record.training import Training

if TYPE_CHECKING:
    from tests.record.recording import Recording


def _examined(schedule: Schedule, steps: int) -> dict[int, str]:
    return {step: reason for step in range(steps) if (reason := schedule.reason(step))}


def test_the_default_takes_the_first_steps_powers_of_two_and_every_fiftieth() -> None:
    examined = _examined(Schedule(), 201)
    assert [s for s, reason in examined.items() if reason == "first"] == [0, 1, 2]
    assert [s for s, reason in examined.items() if reason == "interval"] == [4, 8, 16, 32, 50, 100, 150, 200]


@pytest.mark.parametrize(("every", "expected"), [(1, list(range(9))), (4, [0, 1, 2, 4, 8]), (1000, [0, 1, 2])])
def test_every_so_many_steps(every: int, expected: list[int]) -> None:
    assert list(_examined(Schedule(every), 9)) == expected


@pytest.mark.parametrize("every", [0, -1])
def test_a_distance_below_one_is_refused(every: int) -> None:
    with pytest.raises(AmpDoctorError, match="every"):
        Schedule(every)


def test_a_burst_follows_an_alarm_and_bears_its_name() -> None:
    schedule = Schedule()
    schedule.alarm("skip", 10)
    examined = _examined(schedule, 20)
    assert {s: r for s, r in examined.items() if r == "skip"} == {10 + i: "skip" for i in range(BURST_STEPS)}


def test_a_lasting_fault_gets_fewer_and_fewer_bursts() -> None:
    schedule = Schedule(every=10**9)
    for step in range(400):
        schedule.alarm("skip", step)
    bursts = [s for s, reason in _examined(schedule, 420).items() if reason == "skip"]
    starts = [s for s in bursts if s - 1 not in bursts]
    # The first falls into the first steps; pauses double: 25, 50, 100, 200.
    assert [b - a for a, b in pairwise(starts)][-3:] == [2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE]


def test_another_kind_of_alarm_is_not_silenced() -> None:
    schedule = Schedule()
    schedule.alarm("skip", 10)
    schedule.alarm("plateau", 13)
    assert _examined(schedule, 16)[13] == "plateau"


def test_a_burst_also_comes_between_fixed_distances() -> None:
    schedule = Schedule(every=100)
    schedule.alarm("nonfinite-loss", 7)
    assert list(_examined(schedule, 20)) == [0, 1, 2, 7, 8]


def test_the_budget_binds_beyond_the_free_seconds() -> None:
    schedule = Schedule(budget=0.1)
    schedule.account(FREE_SECONDS, FREE_SECONDS, examined=True)
    assert schedule.reason(4) == "interval"
    schedule.account(1.0, 0.5, examined=True)
    assert schedule.reason(4) is None
    # It recovers as training goes on: 5.5 s of 55 s are a tenth.
    schedule.account(55.0, 0.0, examined=False)
    assert schedule.reason(4) == "interval"


def test_ranks_examine_the_same_steps_whatever_each_has_spent() -> None:
    cheap, dear = (Schedule(in_step=lambda: True) for _ in range(2))
    for step in range(200):
        assert cheap.reason(step) == dear.reason(step)
        examined = cheap.reason(step) is not None
        cheap.account(0.1, 0.0, examined=examined)
        dear.account(0.1 + 10.0 * examined, 10.0 * examined, examined=examined)
    dear.alarm("skip", 201)
    dear.alarm("skip", 300)
    assert dear.reason(301) is None


def test_a_fixed_distance_is_kept_whatever_it_costs() -> None:
    schedule = Schedule(every=5, budget=0.0)
    schedule.account(100.0, 100.0, examined=True)
    assert list(_examined(schedule, 11)) == [0, 1, 2, 5, 10]


def test_what_an_examination_leaves_to_the_device_counts_too() -> None:
    schedule = Schedule(budget=0.1)
    for _ in range(3):
        schedule.account(1.0, 0.0, examined=False)
    # The host was free after 0.1 s, but the step took FREE_SECONDS + 1 s longer than its neighbours.
    schedule.account(FREE_SECONDS + 2.0, 0.1, examined=True)
    assert schedule.reason(4) is None


def test_the_onset_of_trouble_is_examined_whatever_it_costs() -> None:
    schedule = Schedule(budget=0.0)
    schedule.account(100.0, 100.0, examined=True)
    schedule.alarm("skip", 100)
    assert list(_examined(schedule, 110))[-2:] == [100, 101]


def test_a_trouble_that_comes_round_is_awaited() -> None:
    schedule = Schedule()
    for step in (204, 208):  # it happened on the steps before
        schedule.alarm("skip", step)
    assert schedule.reason(211) == "skip"


def test_what_the_first_step_takes_to_find_its_modules_is_not_held_against_the_others(recording: Recording) -> None:
    with recording.start() as recorder:
        Training().run(1)
        assert recorder._schedule._spent == 0.0
        Training().run(3)
        assert recorder._schedule._spent > 0.0
