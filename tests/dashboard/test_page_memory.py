"""The page Memory and speed, used as a person would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dashboard.conftest import wait_until_settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

RUN = "bert_fp16_scaled"


def test_the_moment_is_chosen_and_the_address_holds_it(page: Page, samples: str) -> None:
    page.goto(f"{samples}/memory?run={RUN}")
    wait_until_settled(page)
    page.wait_for_selector("#memory-treemap .slice")
    assert "peak" in page.inner_text("#memory-said")
    page.get_by_text("after forward", exact=True).first.click()
    page.wait_for_url("**phase=forward**")
    page.wait_for_function("() => document.querySelector('#memory-said').innerText.includes('after forward')")
    page.reload()
    wait_until_settled(page)
    page.wait_for_function("() => document.querySelector('#memory-said').innerText.includes('after forward')")


def test_numbers_have_grades_and_empty_parts_say_why(page: Page, samples: str) -> None:
    page.goto(f"{samples}/memory?run={RUN}")
    wait_until_settled(page)
    page.wait_for_selector("#memory-numbers .badge")
    assert page.locator("#memory-numbers .badge").count() == page.locator("#memory-numbers .number").count()
    page.wait_for_selector("#memory-advice li")
    for place in ("memory-paces", "memory-kept"):
        page.wait_for_function(f"() => document.querySelector('#{place}').textContent.includes('--prove')")
    page.wait_for_function("() => document.querySelector('#memory-gpu').textContent.includes('CUDA')")


def test_the_page_speaks_chinese(page: Page, samples: str) -> None:
    page.goto(f"{samples}/memory?run={RUN}&lang=zh")
    wait_until_settled(page)
    page.wait_for_selector("#memory-advice li")
    assert "显存" in page.inner_text("#page h1")
    assert "estimated" not in page.inner_text("#memory-advice")
