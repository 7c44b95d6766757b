"""Sentences with gaps: what they find themselves in, and what they make of it."""

from __future__ import annotations

import pytest

from ampdoctor_dashboard.words.patterns import Pattern, is_number


@pytest.mark.parametrize(
    ("pattern", "text", "values"),
    [
        ("{n} of {n2} steps", "3 of 4 steps", {"n": "3", "n2": "4"}),
        ("{n} of {n2} steps", "some of 4 steps", None),
        ("at {word}", "at `a b`", {"word": "`a b`"}),
        ("at {word}", "at a b", None),
        ("{what} ({rule})", "a (b) c (near-oom)", {"what": "a (b) c", "rule": "near-oom"}),
        ("gradient{site} was {n}", "gradient was 3", {"site": "", "n": "3"}),
        ("is {what}.", "is .", None),
        ("a {x} b {y} c", "a 1 b 2 b 3 c", {"x": "1", "y": "2 b 3"}),
        ("ab{x}ba", "aba", None),
    ],
)
def test_it_finds_itself(pattern: str, text: str, values: dict[str, str] | None) -> None:
    assert Pattern(pattern, pattern).match(text) == values


@pytest.mark.parametrize(
    "text", ["3", "-0.5", "18.5 %", "< 0.01 %", "3.84e+05", "65536 (2^16)", "2^-24", "3.5 MiB", "inf", "nan", "1,024"]
)
def test_numbers_as_findings_write_them(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "3 steps", "0.1.", "2^", "one", "9" * 1000, "-", "1e"])
def test_what_is_no_number(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize(
    ("other", "value", "said"),
    [
        ("\u7b2c{x}\u6b65", "3", "\u7b2c 3 \u6b65"),
        ("\u5728 {x} \u4e2d", "\u6a21\u578b", "\u5728\u6a21\u578b\u4e2d"),
        ("\u5728 {x} \u4e2d", "`a`", "\u5728 `a` \u4e2d"),
        ("\u635f\u5931{x}", "", "\u635f\u5931"),
    ],
)
def test_chinese_and_latin_script_are_set_apart(other: str, value: str, said: str) -> None:
    assert Pattern("{x}", other).filled({"x": value}) == said


def test_what_is_in_a_gap_is_no_pattern() -> None:
    assert Pattern("{x} {y}", "{y} {x}").filled({"x": "{y}", "y": "{x}"}) == "{x} {y}"
