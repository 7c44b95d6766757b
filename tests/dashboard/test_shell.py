"""The shell driven as a person does: choosing a run, the address, language, theme, going back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import served, wait_until_settled
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

RUN = "bert_fp16_collapse"


def test_a_run_is_chosen_by_its_row(page: Page, samples: str) -> None:
    page.goto(samples)
    page.locator(".ag-cell", has_text=RUN).first.click()
    expect(page).to_have_url(re.compile(rf"/diagnosis\?run={RUN}"))
    expect(page.locator("#choose-run")).to_have_value(RUN)


def test_the_chosen_step_goes_along_to_other_pages(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}&step=8")
    wait_until_settled(page)
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator("h1", has_text="Runs")).to_be_visible()
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator("h1", has_text="Timeline")).to_be_visible()
    assert f"run={RUN}" in page.url
    assert "step=8" in page.url


def test_what_is_changed_is_in_the_address_and_a_new_visit_shows_it(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}")
    wait_until_settled(page)
    page.get_by_text("over time").click()
    expect(page).to_have_url(re.compile("axis=time"))
    page.goto(page.url)
    wait_until_settled(page)
    expect(page.locator("#timeline-figure")).to_contain_text("seconds since the first step")


def test_another_run_forgets_the_step_of_the_one_before(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}&step=8")
    wait_until_settled(page)
    page.locator("#choose-run").click()
    page.get_by_role("option", name="bert_bf16").click()
    expect(page).to_have_url(re.compile("run=bert_bf16"))
    assert "step=" not in page.url


def test_going_back_shows_what_was_there(page: Page, samples: str) -> None:
    page.goto(f"{samples}/runs")
    wait_until_settled(page)
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator("h1", has_text="Timeline")).to_be_visible()
    page.go_back()
    expect(page.locator("h1", has_text="Runs")).to_be_visible()


def test_the_language_is_chosen(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}")
    wait_until_settled(page)
    page.locator("#choose-lang").click()
    page.get_by_role("option", name="简体中文").click()
    expect(page).to_have_url(re.compile("lang=zh"))
    expect(page.locator("#page h1")).to_have_text("时间线")
    expect(page.get_by_role("navigation", name="页面")).to_contain_text("时间线")
    assert page.evaluate("document.documentElement.lang") == "zh"


def test_the_browser_s_language_is_spoken(browser: Browser, samples: str) -> None:
    context = browser.new_context(locale="zh-CN")
    page = context.new_page()
    page.goto(f"{samples}/timeline?run={RUN}")
    wait_until_settled(page)
    expect(page.locator("#page h1")).to_have_text("时间线")
    context.close()


def test_the_theme_is_kept(page: Page, samples: str) -> None:
    page.goto(f"{samples}/runs")
    wait_until_settled(page)
    before = page.evaluate("document.documentElement.dataset.theme")
    page.get_by_role("button", name="light or dark").click()
    page.wait_for_function(f"() => document.documentElement.dataset.theme !== '{before}'")
    page.reload()
    wait_until_settled(page)
    assert page.evaluate("document.documentElement.dataset.theme") != before


@pytest.mark.parametrize("path", ["timeline?run=nowhere", "timeline?run=../..", "nosuchpage"])
def test_what_can_not_be_shown_says_why(page: Page, samples: str, path: str) -> None:
    page.goto(f"{samples}/{path}")
    expect(page.locator(".problem")).to_be_visible()


def test_the_newest_run_is_shown_where_none_was_chosen(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline")
    expect(page.locator("h1", has_text="Timeline")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/timeline\?run=\w+"))
    expect(page.locator("#choose-run")).not_to_have_value("")
    expect(page.locator(".problem")).to_have_count(0)


def test_choosing_what_is_chosen_changes_nothing(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}")
    wait_until_settled(page)
    page.locator("#choose-run").click()
    page.get_by_role("option", name=RUN, exact=True).click()
    expect(page.locator("#choose-run")).to_have_value(RUN)


def test_the_language_is_remembered(page: Page, samples: str) -> None:
    page.goto(f"{samples}/timeline?run={RUN}")
    wait_until_settled(page)
    page.locator("#choose-lang").click()
    page.get_by_role("option", name="简体中文").click()
    expect(page.locator("#page h1")).to_have_text("时间线")
    page.goto(f"{samples}/timeline?run={RUN}")
    expect(page.locator("#page h1")).to_have_text("时间线")


def test_a_page_of_a_folder_without_runs_says_what_would_fill_it(page: Page, tmp_path: Path) -> None:
    with served(tmp_path) as address:
        page.goto(f"{address}/timeline")
        expect(page.locator(".problem")).to_contain_text("This folder holds no run yet.")


def test_a_folder_that_is_a_run_opens_on_its_diagnosis(page: Page, tmp_path: Path) -> None:
    with served(write_run(tmp_path / "one")) as address:
        page.goto(address)
        wait_until_settled(page)
        expect(page.locator(".nav-here")).to_have_text("Diagnosis")


def test_an_empty_folder_says_what_would_fill_it(page: Page, tmp_path: Path) -> None:
    with served(tmp_path) as address:
        page.goto(address)
        expect(page.locator("#page")).to_contain_text("ampdoctor run train.py")
