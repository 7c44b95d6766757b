"""`ampdoctor explain` and `ampdoctor formats`: what the tool knows, looked up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ampdoctor.formats import FORMATS
from ampdoctor.rules import discover

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.rules.base import Rule
    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

RULES = pytest.mark.parametrize("rule", discover(), ids=lambda rule: rule.name)


def _words(text: str) -> str:
    return " ".join(text.split())


def test_all_rules_are_listed(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("explain")
    assert outcome.code == 0
    for rule in discover():
        assert f"{rule.code}  {rule.name}" in outcome.out


@RULES
def test_a_rule_is_found_by_name_and_by_code(ampdoctor: Ampdoctor, rule: type[Rule]) -> None:
    by_name = ampdoctor("explain", rule.name)
    assert by_name.code == 0
    assert ampdoctor("explain", rule.code).out == by_name.out
    assert ampdoctor("explain", rule.code.lower()).out == by_name.out


@RULES
def test_the_page_holds_all_there_is_to_know(ampdoctor: Ampdoctor, rule: type[Rule]) -> None:
    page = _words(ampdoctor("explain", rule.name).out)
    assert _words(rule.__doc__ or "") in page
    for name, threshold in rule.thresholds.items():
        assert f"{name} = {threshold.value:g}" in page
        assert _words(threshold.source) in page
    for example in (*rule.SICK, *rule.HEALTHY):
        assert f"- {_words(example.title)}" in page


def test_an_unknown_rule_is_bad_usage(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("explain", "nope")
    assert outcome.code == 2
    assert outcome.err.startswith("ampdoctor: error: no rule 'nope'\n  hint: known rules: ")


def test_a_mistyped_rule_is_guessed(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("explain", "gradient-underfow")
    assert outcome.code == 2
    assert "  hint: did you mean gradient-underflow? `ampdoctor explain` lists all rules" in outcome.err


def test_the_table_holds_every_format_and_what_it_means(ampdoctor: Ampdoctor) -> None:
    table = ampdoctor("formats").out
    for number_format in FORMATS.values():
        assert number_format.title in table
        assert _words(number_format.for_gradients) in _words(table)


def test_the_limits_of_fp16_are_those_of_the_standard(ampdoctor: Ampdoctor) -> None:
    lines = ampdoctor("formats").out.splitlines()
    row = next(line for line in lines if line.startswith("FP16  "))
    assert row.split() == ["FP16", "5/10", "65504", "2^-14", "2^-24", "2^-25", "2^-10", "40"]


def test_a_compute_format_has_no_stored_limits(ampdoctor: Ampdoctor) -> None:
    entries = {e["name"]: e for e in json.loads(ampdoctor("formats", "--format", "json").out)}
    assert list(entries) == list(FORMATS)
    assert entries["tf32"]["flush_exponent"] is None
    assert entries["fp16"]["flush_exponent"] == -25
    assert entries["e4m3fn"]["has_inf"] is False
