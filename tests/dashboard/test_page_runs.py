"""The page Runs, as a person uses it."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from ampdoctor.trace.info import update_info
from tests.dashboard.conftest import served
from tests.recorded import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

expect.set_options(timeout=30_000)  # a busy machine gets more than the usual five seconds


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A dashboard of a folder with a run that ended, one that goes on, one that hangs, and three that are none."""
    root = tmp_path / "runs"
    here = {"status": "running", "pid": os.getpid(), "host": socket.gethostname(), "exit_code": None}
    write_run(root / "done")
    update_info(write_run(root / "going"), started=time.time() - 90.0, **here)
    update_info(write_run(root / "hung"), started=time.time() - 9000.0, **here)
    for file in (root / "hung").iterdir():
        os.utime(file, (time.time() - 600.0,) * 2)
    write_run(root / "broken")
    (root / "broken" / "run.json").write_text("{")
    (root / "notes").mkdir()
    (root / "notes" / "todo.txt").write_text("buy milk")
    (root / "begun").mkdir()
    with served(root) as address:
        yield f"{address}/runs"


def _row(page: Page, name: str) -> Locator:
    return page.locator(f'#runs-table .ag-row[row-id="{name}"]')


def test_every_folder_is_shown_as_what_it_is(page: Page, folder: str) -> None:
    page.goto(folder)
    expect(_row(page, "done")).to_contain_text("ended")
    expect(_row(page, "going")).to_contain_text("live")
    expect(_row(page, "going")).to_contain_text("1 min")
    expect(_row(page, "hung")).to_contain_text("no news for 10 min")
    expect(_row(page, "broken")).to_contain_text("not readable")
    expect(_row(page, "notes")).to_contain_text("no run")
    expect(_row(page, "begun")).to_contain_text("empty")
    expect(page.locator("#runs-table .ag-row.runs-none")).to_have_count(3)
    expect(_row(page, "done").locator('[col-id="steps"]')).to_have_text("3")


def test_verdicts_come_by_themselves(page: Page, samples: str) -> None:
    page.goto(f"{samples}/runs")
    expect(_row(page, "bert_fp16_collapse")).to_contain_text("FP16 gradients vanish")
    expect(_row(page, "bert_fp16_collapse")).to_contain_text("1 error")
    expect(_row(page, "bert_bf16")).to_contain_text("healthy")


def test_a_click_opens_a_run(page: Page, folder: str) -> None:
    page.goto(folder)
    _row(page, "done").locator("a").click()
    page.wait_for_url("**/diagnosis?run=done")


def test_enter_on_a_row_opens_it(page: Page, folder: str) -> None:
    page.goto(folder)
    _row(page, "done").locator('[col-id="verdict"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/diagnosis?run=done")


def test_what_is_no_run_does_not_open(page: Page, folder: str) -> None:
    page.goto(folder)
    _row(page, "broken").locator('[col-id="verdict"]').click()
    _row(page, "notes").locator('[col-id="name"]').focus()
    page.keyboard.press("Enter")
    expect(_row(page, "done")).to_be_visible()
    page.wait_for_timeout(700)
    assert page.url == folder
