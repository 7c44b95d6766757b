"""The page Ops, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from ampdoctor.trace.builder import RunBuilder
from tests.dashboard.built import write_built
from tests.dashboard.conftest import served, wait_until_settled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[str]:
    """The address of a run whose exponential overflows."""
    builder = RunBuilder().step().twin_step(kind="local")
    builder.op("aten.mm", "layers.3.attn", seq=1, absmax=20.0, inputs_from=[-1], file="model.py", line=40)
    builder.op(
        "aten.exp", "layers.3.attn", seq=2, absmax=4e8, inputs_from=[1], born=30, overflowed=30, first_born=2,
        file="model.py", line=41, function="forward",
    )  # fmt: skip
    builder.op("aten.add", "layers.4", seq=3, inputs_from=[2], absorbed=50, flushed=5)
    write_built(tmp_path / "runs" / "broken", builder)
    with served(tmp_path / "runs") as address:
        yield address


def test_first_birth_is_told_with_its_line_and_its_inputs(page: Page, broken: str) -> None:
    page.goto(f"{broken}/ops?run=broken")
    wait_until_settled(page)
    expect(page.locator("#ops-first")).to_contain_text("First not finite: aten.exp in layers.3.attn")
    expect(page.locator("#ops-first .source")).to_contain_text("model.py:41")
    links = page.locator("#ops-chain li")
    expect(links).to_have_count(3)
    expect(links.nth(1)).to_contain_text("aten.mm")
    expect(links.nth(2)).to_contain_text("before the step")


def test_a_row_shows_where_its_inputs_came_from(page: Page, broken: str) -> None:
    page.goto(f"{broken}/ops?run=broken")
    wait_until_settled(page)
    page.locator("#ops-table .ag-row [col-id='op']", has_text="aten.add").click()
    expect(page.locator("#ops-chain li").first).to_contain_text("aten.add")
    page.wait_for_function("() => location.search.includes('op=3')")


def test_another_way_of_losing_is_chosen(page: Page, broken: str) -> None:
    page.goto(f"{broken}/ops?run=broken")
    wait_until_settled(page)
    expect(page.locator("#ops-figure")).to_contain_text("elements that are born NaN or infinite")
    page.locator("#ops-metric").click()
    page.get_by_role("option", name="share of sums that absorb a term [%]").click()
    expect(page.locator("#ops-figure")).to_contain_text("share of sums that absorb a term [%]")
    page.wait_for_function("() => location.search.includes('metric=absorbed')")


def test_table_sorts(page: Page, samples: str) -> None:
    page.goto(f"{samples}/ops?run=bert_fp16_collapse")
    wait_until_settled(page)
    head = page.locator("#ops-table .ag-header-cell[col-id='order'], #ops-table .ag-header-cell[col-id='seq']")
    head.click()
    head.click()
    first = page.locator("#ops-table .ag-row[row-index='0'] [col-id='seq']")
    expect(first).not_to_have_text("12")


def test_run_without_local_twins_says_how_to_get_them(page: Page, samples: str) -> None:
    page.goto(f"{samples}/ops?run=served_in_one_block")
    wait_until_settled(page)
    expect(page.locator("#ops-first")).to_contain_text("ampdoctor run --prove train.py")
