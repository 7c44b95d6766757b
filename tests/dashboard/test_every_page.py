"""Every page on every sample run, as a person's browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from ampdoctor_dashboard.pages import discover
from tests.dashboard.conftest import picture, wait_until_settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = [page.path for page in discover()]

RUNS = sorted(p.parent.name for p in (Path(__file__).parents[2] / "sample_runs").glob("*/run.json"))

PICTURED = "bert_fp16_collapse"
"""The run whose pages are kept as pictures."""


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("path", PAGES)
def test_page_shows_without_a_complaint(page: Page, samples: str, path: str, run: str) -> None:
    page.goto(f"{samples}/{path}?run={run}")
    wait_until_settled(page)
    assert page.locator("#page h1").count() == 1
    assert page.locator(".problem").count() == 0
    if run == PICTURED:
        picture(page, path)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_page_is_accessible(page: Page, samples: str, path: str, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.goto(f"{samples}/{path}?run={PICTURED}")
    wait_until_settled(page)
    page.wait_for_function(f"() => document.documentElement.dataset.theme === '{theme}'")
    found = Axe().run(page)
    serious = [v for v in found.response["violations"] if v["impact"] in {"serious", "critical"}]
    assert [(v["id"], [n["html"][:160] for n in v["nodes"]][:3]) for v in serious] == []
