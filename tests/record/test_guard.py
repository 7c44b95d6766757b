"""Errors of ours go to the recorder, everything else to whom it belongs."""

from __future__ import annotations

import time

import pytest

from ampdoctor.record.guard import Guard, told


def test_an_error_is_handed_over_and_swallowed() -> None:
    errors: list[Exception] = []
    with Guard(errors.append):
        raise ValueError("ours")
    assert [str(e) for e in errors] == ["ours"]


def test_a_strict_guard_raises_as_well() -> None:
    errors: list[Exception] = []
    with pytest.raises(ValueError, match="ours"), Guard(errors.append, strict=True):
        raise ValueError("ours")
    assert len(errors) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes(kind: type[BaseException]) -> None:
    errors: list[Exception] = []
    with pytest.raises(kind), Guard(errors.append):
        raise kind
    assert not errors


def test_the_time_inside_is_counted_once() -> None:
    guard = Guard(lambda _: None)
    start = time.perf_counter()
    with guard, guard:
        time.sleep(0.01)
    whole = time.perf_counter() - start
    spent = guard.take_seconds()
    assert 0.01 <= spent <= whole
    assert guard.take_seconds() == 0.0


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_in_words() -> None:
    assert told(KeyError("x")) == "KeyError: 'x'"
    assert told(_MuteError()) == "_MuteError"
    assert told(KeyboardInterrupt()) == "KeyboardInterrupt"
