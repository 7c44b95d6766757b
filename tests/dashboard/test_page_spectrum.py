"""The page Spectrum, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.dashboard.conftest import wait_until_settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

SITE = "grad_output:encoder.layers.0.linear1.out"


def test_steps_and_scaling_are_chosen(page: Page, samples: str) -> None:
    page.goto(f"{samples}/spectrum?run=bert_fp16_scaled&site={SITE}&step=8")
    wait_until_settled(page)
    expect(page.locator("#spectrum-step")).to_have_text("step 8")
    page.click("#spectrum-on")
    expect(page.locator("#spectrum-step")).to_have_text("step 16")
    page.get_by_text("as held").click()
    expect(page.locator("#spectrum-at")).to_contain_text("magnitude as held")
    assert "scaling=held" in page.url


def test_another_site_is_found_by_its_name(page: Page, samples: str) -> None:
    page.goto(f"{samples}/spectrum?run=bert_fp16_collapse")
    wait_until_settled(page)
    page.click("#spectrum-site")
    page.fill("#spectrum-site", "token.weight (weight_grad")
    page.get_by_role("option", name="token.weight (weight_grad)").click()
    expect(page.locator("#spectrum-site-name")).to_have_text("token.weight")
