"""What documentation is generated is up to date with the code."""

from __future__ import annotations

from tools.docs import CATALOGUE, README, catalogue, readme


def test_catalogue_of_rules_is_current() -> None:
    assert CATALOGUE.read_text(encoding="utf-8") == catalogue(), "run `make docs`"


def test_tables_of_the_readme_are_current() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == readme(text), "run `make docs`"
