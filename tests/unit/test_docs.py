"""What documentation is generated is up to date with the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from ampdoctor.engine import Diagnosis
from ampdoctor.session import watch
from tools.docs import CATALOGUE, README, ROOT, SCHEMA, catalogue, readme, schema_page


def test_catalogue_of_rules_is_current() -> None:
    assert CATALOGUE.read_text(encoding="utf-8") == catalogue(), "run `make docs`"


def test_page_of_the_schema_is_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_page(), "run `make docs`"


def test_tables_of_the_readme_are_current() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == readme(text), "run `make docs`"


def test_what_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert str(SCHEMA.relative_to(ROOT)) in links
    assert [link for link in links if not (ROOT / Path(link)).exists()] == []


def test_the_readme_names_what_watch_and_a_diagnosis_have() -> None:
    text = README.read_text(encoding="utf-8")
    table = {name for row in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {f.name for f in fields(Diagnosis)} | {"faults"} <= table
    assert set(inspect.signature(watch).parameters) <= table
