"""Curves as text: they lie where the numbers say."""

from __future__ import annotations

import math

import pytest

from ampdoctor.report.chart import Curve, Mark, marked, side_by_side

FLAT = Curve("as written", [10.0] * 50)
FALLING = Curve("cured", [10.0 - 0.1 * i for i in range(50)])


def _lit(line: str) -> list[int]:
    return [i for i, character in enumerate(line) if character == "*"]


def test_one_scale_for_all_panels() -> None:
    lines = side_by_side([FLAT, FALLING], width=80).splitlines()
    assert lines[0].split("  ")[0] == "as written"
    assert lines[1].count("10 |") == 2
    assert lines[12].count("5.1 |") == 2


def test_a_flat_curve_is_flat_and_a_falling_one_falls() -> None:
    flat = side_by_side([Curve("flat", [*FLAT.values, 5.0])], width=60, height=10).splitlines()
    falling = side_by_side([FALLING], width=60, height=10).splitlines()
    assert len(_lit(flat[1])) > 40
    tops = [_lit(line)[0] for line in falling[1:11]]
    assert tops == sorted(tops)
    assert tops[0] < tops[-1]


def test_panels_go_below_each_other_where_there_is_no_room() -> None:
    text = side_by_side([FLAT, FALLING], width=40)
    assert text.index("as written") < text.index("step 0") < text.index("cured")


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("width", [10, 20, 40, 100, 200])
@pytest.mark.parametrize("height", [2, 12])
def test_nothing_is_wider_than_asked(fine: bool, width: int, height: int) -> None:
    text = side_by_side([FLAT, FALLING], width=width, height=height, fine=fine)
    assert max(map(len, text.splitlines())) <= width


def test_plain_charts_are_ascii_and_fine_ones_have_no_escapes() -> None:
    assert side_by_side([FLAT, FALLING], width=80).isascii()
    fine = side_by_side([FLAT, FALLING], width=80, fine=True)
    assert any("\u2800" < character <= "\u28ff" for character in fine)
    assert "\x1b" not in fine


@pytest.mark.parametrize("values", [[], [math.nan] * 5, [math.inf, 1.0], [1.0], [0.0, 0.0], [1.0, math.nan, 3.0]])
def test_any_numbers_can_be_drawn(values: list[float]) -> None:
    assert "curve" in side_by_side([Curve("curve", values), FALLING], width=80)


def test_nothing_is_drawn_where_there_is_no_number() -> None:
    half = Curve("half", [1.0] * 50 + [math.nan] * 50)
    lines = side_by_side([half], width=60, height=5).splitlines()
    lit = [column for line in lines[1:6] for column in _lit(line)]
    assert lit
    assert max(lit) < 35


def test_marks_lie_on_their_values_and_below_their_places() -> None:
    curve = Curve("falling", [100.0 - 10.0 * i for i in range(11)])
    marks = [Mark(5, 50.0, "o"), Mark(10, None, "^")]
    names = ["a", *[""] * 9, "z"]
    lines = marked(curve, (0.0, 100.0), names, marks, width=40, height=11).splitlines()
    assert "o" in lines[6]
    assert lines[-2].strip() == "^"
    assert lines[-2].index("^") == lines[-1].index("z") == 39
    assert max(map(len, lines)) <= 40
