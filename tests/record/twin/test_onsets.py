"""Trouble that begins, lasts, goes and comes back."""

from __future__ import annotations

from ampdoctor.record.twin.onsets import CLEAN_STEPS, Onsets


def begun(steps: list[int], kind: str = "skip", onsets: Onsets | None = None) -> list[int]:
    followed = onsets or Onsets()
    return [step for step in steps if followed.begins(kind, step)]


def test_what_lasts_begins_once() -> None:
    assert begun(list(range(7, 500))) == [7]


def test_what_comes_back_after_a_while_begins_anew() -> None:
    later = 3 + CLEAN_STEPS + 1
    assert begun([3, 4, later - 1, later]) == [3]
    assert begun([3, later]) == [3, later]


def test_each_return_has_to_be_longer_in_coming() -> None:
    second = CLEAN_STEPS + 1
    third = second + CLEAN_STEPS + 1
    fourth = third + 2 * CLEAN_STEPS + 1
    assert begun([0, second, third, fourth]) == [0, second, fourth]


def test_kinds_do_not_know_each_other() -> None:
    onsets = Onsets()
    assert begun([5], "skip", onsets) == [5]
    assert begun([6], "plateau", onsets) == [6]
