"""The page Pipeline, as a person uses it."""

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
def clipped(tmp_path: Path) -> Iterator[str]:
    """The address of a run that clips before it unscales."""
    builder = RunBuilder()
    for _ in range(12):
        builder.step(loss=2.0, loss_scale=65536.0, found_inf=False, grad_norm=9000.0)
        builder.tensor("head", "activation", dtype="float16", exponents={0: 50}, autocast="float16")
        builder.tensor("head", "weight_grad", slot="weight", exponents={-4: 50}, loss_scale=65536.0)
        where = {"file": "<b>train</b>.py", "line": 12}
        builder.call("zero_grad", **where).call("scale", **where).call("backward", scaled="all", **where)
        builder.call("clip_norm", limit=1.0, norm=9000.0, **where).call("scaler_step", **where).call("update", **where)
        builder.scaler("seen", enabled=True).scaler("step", scale=65536.0).scaler("hold", scale=65536.0)
    write_built(tmp_path / "runs" / "clipped", builder)
    with served(tmp_path / "runs") as address:
        yield address


def test_the_station_at_fault_is_lit_and_leads_to_the_finding(page: Page, samples: str) -> None:
    page.goto(f"{samples}/pipeline?run=bert_fp16_collapse")
    wait_until_settled(page)
    lit = page.locator(".station-bad")
    expect(lit).to_have_count(1)
    expect(lit).to_contain_text("Backward")
    expect(page.locator(".station")).to_have_count(11)
    expect(page.locator("#pipeline-details")).to_contain_text("gradient-underflow")
    page.locator("#pipeline-details .found-here a").click()
    page.wait_for_url("**/diagnosis?run=bert_fp16_collapse&finding=*")


def test_a_station_tells_its_numbers_when_clicked(page: Page, samples: str) -> None:
    page.goto(f"{samples}/pipeline?run=bert_fp16_scaled&step=2")
    wait_until_settled(page)
    page.get_by_role("button", name="Forward").click()
    expect(page.locator("#pipeline-details")).to_contain_text("matrix products, convolutions")
    page.wait_for_function("() => location.search.includes('station=forward')")
    page.get_by_role("button", name="\u00d7 scale").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#pipeline-details")).to_contain_text("65536 (2^16)")
    expect(page.locator("[aria-pressed='true']")).to_have_count(1)


def test_stations_that_a_run_does_not_use_say_why(page: Page, samples: str) -> None:
    page.goto(f"{samples}/pipeline?run=bert_bf16")
    wait_until_settled(page)
    scale = page.locator(".station").nth(4)
    expect(scale).to_contain_text("BF16 has FP32's range and needs no loss scale")
    page.goto(f"{samples}/pipeline?run=bert_fp32")
    expect(page.locator(".station").nth(4)).to_contain_text("FP32 needs no loss scale")


def test_call_out_of_place_is_marked_beside_the_right_order(page: Page, clipped: str) -> None:
    page.goto(f"{clipped}/pipeline?run=clipped")
    wait_until_settled(page)
    expect(page.locator("#pipeline-order .call-bad").last).to_contain_text("unscale_ belongs before it")
    expect(page.locator("#pipeline-order .call-bad").first).to_contain_text("not made on this step")
    expect(page.locator("#pipeline-order")).to_contain_text("<b>train</b>.py:12")


def test_another_step_is_chosen(page: Page, samples: str) -> None:
    page.goto(f"{samples}/pipeline?run=bert_fp16_scaled")
    wait_until_settled(page)
    page.locator("#pipeline-step").click()
    page.get_by_role("option", name="step 2, with a twin").click()
    page.wait_for_function("() => location.search.includes('step=2')")
    expect(page.locator(".station").nth(5)).to_contain_text("measured")


@pytest.mark.parametrize("path", ["pipeline", "spectrum", "whatif"])
def test_of_a_step_that_was_not_examined_the_nearest_is_shown_and_said(page: Page, samples: str, path: str) -> None:
    page.goto(f"{samples}/{path}?run=bert_fp16_collapse&step=100000")
    expect(page.locator(f"#{path}-instead")).to_contain_text("Step 100000 was not examined; shown is step")
    wait_until_settled(page)
