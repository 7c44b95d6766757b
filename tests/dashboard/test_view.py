"""What is shown survives the way through the address."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampdoctor_dashboard.view import LONGEST, View

NAMES = [f.name for f in fields(View)]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(st.sampled_from(NAMES), TEXT))
def test_a_view_is_what_its_address_says(values: dict[str, str]) -> None:
    view = View.of(values)
    assert View.of_query(view.query) == view


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.none(), st.lists(st.integers()))))
def test_whatever_comes_in_is_text_or_left_out(values: dict[str, object]) -> None:
    view = View.of(values)
    assert all(isinstance(getattr(view, name), str) for name in NAMES)


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), ("0", 0), ("", None), ("-1", None), ("²", None), ("9" * 40, None)]
)
def test_steps_are_numbers_or_nothing(text: str, number: int | None) -> None:
    assert View(step=text).step_number == number


def test_values_that_are_too_long_are_cut() -> None:
    assert len(View.of({"site": "x" * 10**6}).site) == LONGEST


def test_nothing_chosen_leaves_the_address_bare() -> None:
    assert View().query == ""
    assert View(step="3").with_(step=None).query == ""
