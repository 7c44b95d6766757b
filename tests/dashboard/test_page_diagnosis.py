"""The page Diagnosis, as a person uses it."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from ampdoctor.trace.info import update_info
from tests.dashboard.conftest import served, wait_until_settled
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

expect.set_options(timeout=30_000)  # a busy machine gets more than the usual five seconds

COLLAPSE = "bert_fp16_collapse"


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".verdict-text")
    wait_until_settled(page)


def test_it_says_what_is_wrong_and_what_to_change(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run={COLLAPSE}")
    expect(page.locator(".verdict-text")).to_contain_text("FP16 gradients vanish with no loss scaling")
    expect(page.locator(".verdict-bad")).to_have_count(1)
    finding = page.locator(".finding").first
    expect(finding).to_contain_text("gradient-underflow")
    expect(finding.locator(".evidence-list li").first.locator(".badge")).to_have_text("measured")
    expect(finding.locator(".fix").first).to_contain_text("Scale the loss with a dynamic GradScaler")
    expect(finding.locator(".fix .code").first).to_contain_text("GradScaler(")
    expect(finding.locator(".sparkline .js-plotly-plot")).to_have_count(3)
    own = finding.locator(".tried-table tr.figures-own")
    expect(own).to_contain_text("100 %")
    expect(page.locator("#diagnosis-precision")).to_contain_text("FP16 autocast in 7 of 15 modules")
    expect(page.locator("#diagnosis-news")).to_have_text("as of step 39")


def test_a_healthy_run_says_so_and_what_that_rests_on(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run=bert_fp16_scaled")
    expect(page.locator(".verdict-good .verdict-text")).to_contain_text("no precision fault found")
    expect(page.locator(".verdict-detail")).to_contain_text("Nothing was found.")
    expect(page.locator(".verdict-tile").nth(1)).to_contain_text("7")
    expect(page.locator("#diagnosis-tried .tried-table")).to_be_visible()
    expect(page.locator(".rule-list li")).to_have_count(61)
    expect(page.locator(".finding")).to_have_count(0)
    expect(page.locator("#diagnosis-rest")).to_contain_text("not recorded: another rank")


def test_the_finding_that_is_unfolded_is_in_the_address(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run=half_moments")
    heads = page.locator(".finding .mantine-Accordion-control")
    expect(heads.nth(0)).to_have_attribute("aria-expanded", "true")
    assert "finding=" not in page.url
    heads.nth(1).press("Enter")
    page.wait_for_function("() => location.search.includes('finding=')")
    _open(page, page.url)
    expect(heads.nth(1)).to_have_attribute("aria-expanded", "true")
    expect(heads.nth(0)).to_have_attribute("aria-expanded", "false")
    assert "finding=" in page.url


def test_sites_and_steps_lead_to_their_pages(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run={COLLAPSE}")
    site = page.locator(".site-chip a.link").first
    expect(site).to_have_attribute("href", f"/spectrum?run={COLLAPSE}&site=grad_output%3Adecoder.cast")
    layers = page.locator(".site-chip a.site-layers").first
    expect(layers).to_have_attribute("href", f"/layers?run={COLLAPSE}&site=grad_output%3Adecoder.cast&role=grad_output")
    page.get_by_role("link", name="steps 0 to 32").click()
    page.wait_for_url("**/timeline?**")
    assert "step=0" in page.url


def test_a_rule_is_explained_on_the_page(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run={COLLAPSE}")
    page.get_by_role("button", name="What does this mean?").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h3").first).to_have_text("What it means")
    expect(dialog).to_contain_text("Not to be mistaken for")
    expect(dialog).to_contain_text("[tool.ampdoctor.rules.gradient-underflow]")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.locator("summary", has_text="What was looked for").click()
    page.locator(".rule-list button", has_text="scale-collapse").click()
    expect(page.get_by_role("dialog")).to_contain_text("scale-collapse")


def test_the_precision_is_listed_module_by_module(page: Page, samples: str) -> None:
    _open(page, f"{samples}/diagnosis?run={COLLAPSE}")
    page.get_by_role("button", name="Module by module").click()
    row = page.locator("#diagnosis-modules-table .ag-row", has_text="encoder.layers.0.linear1").first
    expect(row).to_contain_text("float16")
    expect(row).to_contain_text("float32")


def test_what_is_unfolded_stays_so_when_the_run_is_judged_anew(page: Page, sample_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "live"
    shutil.copytree(sample_runs / "half_moments", folder)
    update_info(folder, status="running", pid=os.getpid(), host=socket.gethostname(), ended=None, exit_code=None)
    with served(folder.parent) as address:
        _open(page, f"{address}/diagnosis?run=live")
        gap = page.locator("#diagnosis-rest", has_text="the run has not finished")
        expect(gap).to_be_visible()
        heads = page.locator(".finding .mantine-Accordion-control")
        heads.nth(1).click()
        expect(heads.nth(1)).to_have_attribute("aria-expanded", "true")
        page.locator("summary", has_text="What was looked for").click()
        update_info(folder, status="complete", ended=1e9, exit_code=0)
        expect(gap).to_have_count(0, timeout=90_000)  # it is judged anew after a rest
        expect(heads.nth(0)).to_have_attribute("aria-expanded", "true")
        expect(heads.nth(1)).to_have_attribute("aria-expanded", "true")
        expect(page.locator(".rule-list").first).to_be_visible()


def test_a_run_of_which_next_to_nothing_is_known(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "bare")
    with served(tmp_path / "runs") as address:
        _open(page, f"{address}/diagnosis?run=bare")
        expect(page.locator("#diagnosis-rest")).to_contain_text("not recorded: ")
        expect(page.locator("#diagnosis-verdict .verdict")).to_have_count(1)


def test_a_run_that_cannot_be_judged_says_why(page: Page, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs" / "damaged")
    (folder / "tensors-0.arrows").write_bytes(b"no arrow stream at all" * 10)
    with served(tmp_path / "runs") as address:
        page.goto(f"{address}/diagnosis?run=damaged")
        expect(page.locator("#diagnosis-verdict .problem")).to_contain_text("tensors")


@pytest.mark.parametrize("lang", ["zh"])
def test_it_speaks_the_readers_language(page: Page, samples: str, lang: str) -> None:
    _open(page, f"{samples}/diagnosis?run={COLLAPSE}&lang={lang}")
    expect(page.locator(".verdict-text")).to_contain_text("梯度消失")
    expect(page.locator(".finding .fix").first).to_contain_text("GradScaler")
