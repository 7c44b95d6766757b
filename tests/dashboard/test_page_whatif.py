"""The page What-if, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.dashboard.conftest import wait_until_settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

_MARK = "() => document.querySelector('#whatif-figure .js-plotly-plot')?.layout?.shapes?.[0]?.x0"


def _open(page: Page, address: str) -> None:
    page.goto(address)
    wait_until_settled(page)
    expect(page.locator("#whatif-answer strong")).to_be_visible()


def test_slider_answers_at_once_and_is_in_the_address(page: Page, samples: str) -> None:
    _open(page, f"{samples}/whatif?run=bert_fp16_collapse")
    expect(page.locator("#whatif-answer")).to_contain_text("at loss scale 1, 100 % of the weight gradients")
    expect(page.locator("#whatif-answer")).to_contain_text("measured")
    page.wait_for_function(f"() => ({_MARK})() === 0")
    slider = page.get_by_role("slider", name="loss scale, as a power of two")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#whatif-readout")).to_have_text("2^4 = 16")
    page.wait_for_function(f"() => ({_MARK})() === 4")
    expect(page.locator("#whatif-answer")).to_contain_text("In FP16 at loss scale 16")
    page.wait_for_function("() => location.search.includes('scale=4')")
    page.keyboard.press("End")
    expect(page.locator("#whatif-readout")).to_have_text("2^24 = 16777216")


def test_recommended_scale_is_marked_and_one_click_away(page: Page, samples: str) -> None:
    _open(page, f"{samples}/whatif?run=bert_fp16_collapse")
    texts = "document.querySelector('#whatif-figure .js-plotly-plot')?.layout?.annotations?.map((a) => a.text)"
    page.wait_for_function(f"() => ({texts} || []).includes('recommended: 2^23')")
    expect(page.locator("#whatif-cures li").first).to_contain_text("measured")
    page.get_by_role("button", name="recommended scale").click()
    expect(page.locator("#whatif-readout")).to_have_text("2^23 = 8388608")
    expect(page.locator("#whatif-answer")).to_contain_text("< 0.01 %")
    page.get_by_role("button", name="the run's own scale").click()
    expect(page.locator("#whatif-readout")).to_have_text("2^0 = 1")


def test_format_and_sites_are_chosen(page: Page, samples: str) -> None:
    _open(page, f"{samples}/whatif?run=bert_fp16_scaled")
    page.locator("#whatif-format").get_by_text("BF16", exact=True).click()
    expect(page.locator("#whatif-answer")).to_contain_text("In BF16")
    page.wait_for_function("() => location.search.includes('format=bf16')")
    page.get_by_role("textbox", name="sites, as a pattern").fill("encoder.*")
    page.wait_for_function("() => location.search.includes('only=encoder')")
    rows = page.locator("#whatif-table .ag-center-cols-container .ag-row [col-id='site']")
    expect(rows.first).to_contain_text("encoder.")
    page.get_by_role("textbox", name="sites, as a pattern").fill("nothing.here")
    expect(page.locator("#whatif-figure")).to_contain_text("no weight gradient is called nothing.here")


def test_link_leads_to_the_same_view(page: Page, samples: str) -> None:
    _open(page, f"{samples}/whatif?run=bert_fp16_scaled&format=e4m3fn&scale=-4&step=0")
    expect(page.locator("#whatif-readout")).to_have_text("2^-4 = 1/16")
    expect(page.locator("#whatif-answer")).to_contain_text("In FP8 E4M3fn at loss scale 2^-4")
    expect(page.locator("#whatif-answer")).to_contain_text("Step 0")


def test_run_without_gradients_says_why_there_is_nothing(page: Page, samples: str) -> None:
    page.goto(f"{samples}/whatif?run=served_in_one_block")
    wait_until_settled(page)
    expect(page.locator("#whatif-figure")).to_contain_text("no gradients were recorded in this run")
