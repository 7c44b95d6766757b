"""The page Compare, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.dashboard.conftest import served, wait_until_settled
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

expect.set_options(timeout=30_000)  # a busy machine gets more than the usual five seconds

_NAMES = (
    "() => document.querySelector('#compare-figure .js-plotly-plot')._fullData"
    ".filter((d) => d.showlegend).map((d) => d.name)"
)


def test_runs_are_chosen_and_laid_over_each_other(page: Page, samples: str) -> None:
    page.goto(f"{samples}/compare?run=bert_bf16")
    wait_until_settled(page)
    expect(page.locator("#compare-metrics")).to_contain_text("No other run was chosen")
    page.get_by_role("combobox", name="runs to compare with").or_(page.locator("#compare-beside")).first.click()
    page.get_by_role("option", name="bert_fp16_collapse").click()
    page.keyboard.press("Escape")
    first = page.locator("#compare-metrics tbody tr").first
    expect(first).to_contain_text("worse")
    expect(first).to_contain_text("+100 points")
    page.wait_for_function("() => location.search.includes('beside=bert_fp16_collapse')")
    page.wait_for_function(f"() => ({_NAMES})().length === 2")
    assert page.evaluate(_NAMES) == ["bert_bf16", "bert_fp16_collapse"]
    new = page.locator("#compare-findings li").first
    expect(new).to_contain_text("new")
    expect(new).to_contain_text("gradient-underflow")
    expect(page.locator("#compare-settings")).to_contain_text("FP16 autocast in 7 of 15 modules")


def test_a_finding_leads_to_the_run_that_has_it(page: Page, samples: str) -> None:
    page.goto(f"{samples}/compare?run=bert_bf16&beside=bert_fp16_collapse")
    page.locator("#compare-findings a").first.click()
    page.wait_for_url("**/diagnosis?run=bert_fp16_collapse&finding=*")
    expect(page.locator(".verdict-text")).to_contain_text("FP16 gradients vanish")


def test_what_cannot_be_compared_is_told(page: Page, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    write_run(root / "short", (3.0, 2.0))
    write_run(root / "long", (3.0, 2.0, 1.0, 1.0))
    write_run(root / "broken")
    (root / "broken" / "run.json").write_text("{")
    with served(root) as address:
        page.goto(f"{address}/compare?run=long&beside=long~short~broken")
        notes = page.locator("#compare-notes")
        expect(notes).to_contain_text("A run is not compared with itself.")
        expect(notes).to_contain_text("broken can't be read")
        expect(notes).to_contain_text("different numbers of steps (long: 4, short: 2)")
        expect(notes).to_contain_text("short has no examined step")
        expect(page.locator("#compare-metrics")).to_contain_text("loss at the last common step")
        assert "broken" in page.url


def test_a_folder_with_one_run_has_nothing_to_compare_with(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "only")
    with served(tmp_path / "runs") as address:
        page.goto(f"{address}/compare?run=only")
        expect(page.locator("#page")).to_contain_text("This folder holds no other run")


def test_the_axis_is_in_the_address(page: Page, samples: str) -> None:
    page.goto(f"{samples}/compare?run=bert_bf16&beside=bert_fp32")
    wait_until_settled(page)
    page.locator("#compare-axis").get_by_text("over time").click()
    page.wait_for_function("() => location.search.includes('axis=time')")
    expect(page.locator("#compare-figure .xtitle, #compare-figure .g-x6title").first).to_contain_text("seconds")
