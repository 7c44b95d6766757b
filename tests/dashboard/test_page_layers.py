"""The page Layers, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.dashboard.conftest import wait_until_settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

RUN = "bert_fp16_scaled"


def test_modules_fold_by_keyboard_and_the_address_holds_it(page: Page, samples: str) -> None:
    page.goto(f"{samples}/layers?run={RUN}")
    wait_until_settled(page)
    module = page.locator("button[data-module='encoder']")
    expect(module).to_have_attribute("aria-expanded", "true")
    module.focus()
    page.keyboard.press("Enter")
    expect(module).to_have_attribute("aria-expanded", "false")
    assert "open=encoder" in page.url


def test_a_cell_chooses_a_tensor_and_its_spectrum_is_a_click_away(page: Page, samples: str) -> None:
    page.goto(f"{samples}/layers?run={RUN}&metric=zeros")
    wait_until_settled(page)
    plot = page.locator("#layers-figure .nsewdrag")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 30.0, box["y"] + 45.0)
    page.mouse.move(box["x"] + 34.0, box["y"] + 50.0)
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#layers-details")).to_contain_text("position.weight on step 0")
    expect(page.locator(".layers-numbers")).to_contain_text("numel")
    page.get_by_text("open its spectrum").click()
    expect(page.locator("#page h1")).to_have_text("Spectrum")
    assert "step=0" in page.url


def test_role_and_metric_are_chosen(page: Page, samples: str) -> None:
    page.goto(f"{samples}/layers?run={RUN}")
    wait_until_settled(page)
    page.click("#layers-metric")
    page.get_by_role("option", name="zeros", exact=True).click()
    expect(page.locator("#layers-grade")).to_contain_text("observed")
    page.click("#layers-role")
    page.get_by_role("option", name="activations").click()
    expect(page.locator("#layers-tree")).to_contain_text("token.out")
    assert "metric=zeros" in page.url
