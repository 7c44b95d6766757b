"""Runs that are hostile, empty, cut off or enormous: every page shows what there is, or says what is wrong."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ampdoctor_dashboard.pages import discover
from tests.dashboard.conftest import served, wait_until_settled
from tests.dashboard.hostile import hostile_run, many_sites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

PAGES = [page.path for page in discover()]

CUTS = {"a tenth": 0.1, "nearly all": 0.97}
"""How much is left of each table of a run that was cut off."""

CUT = "bert_fp16_collapse"


@pytest.fixture(scope="module")
def odd_runs(tmp_path_factory: pytest.TempPathFactory, sample_runs: Path) -> Path:
    """A folder of odd runs; one of them has a hostile name as well."""
    root = tmp_path_factory.mktemp("odd")
    hostile_run(root / "hostile")
    hostile_run(root / "<img src=x onerror=window.hacked=1>")
    (root / "empty").mkdir()
    for name, share in CUTS.items():
        shutil.copytree(sample_runs / CUT, root / name)
        for table in (root / name).glob("*.arrows"):
            table.write_bytes(table.read_bytes()[: int(table.stat().st_size * share)])
    shutil.copytree(sample_runs / CUT, root / "garbage")
    for number, table in enumerate(sorted((root / "garbage").glob("*.arrows"))):
        table.write_bytes(b"no arrow stream" * 100 if number % 2 else b"")
    (root / "garbage" / "steps-0.arrows").write_bytes(b"no arrow stream")
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text("{]", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def odd(odd_runs: Path) -> Iterator[str]:
    """The address of a dashboard of the odd runs."""
    with served(odd_runs) as address:
        yield address


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a dashboard of a run with 100,000 sites."""
    root = tmp_path_factory.mktemp("large")
    many_sites(root / "many")
    with served(root) as address:
        yield address


def shown(page: Page, address: str) -> None:
    """Open a page, wait for all of it, and see that it is there and that nothing from the trace was executed."""
    dialogs: list[str] = []

    def refuse(dialog: object) -> None:
        dialogs.append(str(dialog))
        dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", refuse)
    page.goto(address)
    wait_until_settled(page)
    page.wait_for_timeout(300)
    assert page.locator("#page h1, #page .problem").count() >= 1
    assert page.evaluate("() => window.hacked") is None
    assert dialogs == []
    hrefs = page.evaluate("() => [...document.querySelectorAll('a')].map(a => a.getAttribute('href') || '')")
    assert [href for href in hrefs if "javascript:" in href.split("?")[0].lower()] == []


@pytest.mark.parametrize("path", PAGES)
def test_nothing_in_a_trace_is_executed(page: Page, odd: str, path: str) -> None:
    shown(page, f"{odd}/{path}?run=hostile")


@pytest.mark.parametrize("path", PAGES)
def test_nothing_in_the_name_of_a_run_is_executed(page: Page, odd: str, path: str) -> None:
    shown(page, f"{odd}/{path}?run=%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E")


@pytest.mark.parametrize("step", ["99999999999", "-7", "x" * 3000 + "<script>window.hacked=1</script>"])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_in_an_address_is_executed(page: Page, odd: str, path: str, step: str) -> None:
    every = "&".join(
        f"{name}={step}" for name in ("step", "site", "role", "metric", "format", "scale", "open", "phase")
    )
    shown(page, f"{odd}/{path}?run=hostile&{every}&beside=nearly all~{step}")


@pytest.mark.parametrize("run", ["empty", "broken", "garbage", *CUTS, "no such run"])
@pytest.mark.parametrize("path", PAGES)
def test_page_shows_what_there_is_of_a_run(page: Page, odd: str, path: str, run: str) -> None:
    shown(page, f"{odd}/{path}?run={run}")


@pytest.mark.parametrize("path", PAGES)
def test_page_opens_with_100000_sites(page: Page, large: str, path: str) -> None:
    shown(page, f"{large}/{path}?run=many")
