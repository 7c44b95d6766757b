"""A dashboard that is served, and a browser that looks at it. Whatever the browser complains about fails the test."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import waitress
from playwright.sync_api import expect, sync_playwright

from ampdoctor_dashboard.app import JUDGE, make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

TIMEOUT_MS = 30_000
"""Long enough for a machine that is busy; nothing waits that long where all is well."""

expect.set_options(timeout=TIMEOUT_MS)

PICTURES = Path(__file__).parents[2] / "build" / "pictures"
"""Where the pictures go that CI keeps."""


@contextmanager
def served(root: Path, **settings: str | None) -> Iterator[str]:
    """Serve the runs in `root` from a thread, and give the address."""
    app = make_app(root, **settings)  # type: ignore[arg-type]
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.trigger.pull_trigger(_end)  # in its own loop, which must not find its sockets closed
        thread.join(timeout=10.0)
        server.close()
        app.server.extensions[JUDGE].close()


def _end() -> None:
    raise SystemExit


@pytest.fixture(scope="session")
def sample_runs(repository: Path) -> Path:
    """The folder of the sample runs."""
    return repository / "sample_runs"


@pytest.fixture(scope="session")
def samples(sample_runs: Path) -> Iterator[str]:
    """The address of a dashboard of the sample runs."""
    with served(sample_runs) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a process."""
    if not CHROMIUM:
        pytest.skip("there is no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser window that knows nothing of the tests before."""
    context = browser.new_context(viewport={"width": 1440, "height": 960}, locale="en-US")
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page; errors in its console, failed requests and answers that are errors fail the test."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    yield page
    assert wrong == []


@pytest.fixture
def settled() -> Callable[[Page], None]:
    """Wait until a page has drawn everything it is going to draw."""
    return wait_until_settled


SETTLED = """() => {
  const page = document.querySelector('#page');
  if (!page) return false;
  const graphs = [...page.querySelectorAll('.dash-graph')];
  const drawn = (graph) => graph.querySelector('.main-svg') && !graph.querySelector('.dash-graph--pending');
  const grids = [...page.querySelectorAll('.ag-root')];
  const filled = (grid) => grid.querySelector('.ag-header-cell');
  const busy = page.querySelector('[data-dash-is-loading="true"], .mantine-Skeleton-root');
  return page.firstElementChild && !busy && graphs.every(drawn) && grids.every(filled);
}"""
"""The page is there, every figure and table is drawn, and nothing is still being judged."""


def wait_until_settled(page: Page) -> None:
    """Wait until a page shows everything that it is going to show."""
    page.wait_for_function(SETTLED)


def picture(page: Page, name: str) -> None:
    """Keep a picture of the page for CI and the README."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
