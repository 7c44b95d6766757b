"""What a person does with the dashboard, in a real browser, with a stopwatch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

PATHS = ("diagnosis", "timeline", "layers", "spectrum", "whatif", "pipeline", "memory", "ops", "compare", "runs")

QUIET = """() => !document.querySelector('[data-dash-is-loading="true"]')"""

IDLE_MS = 250
"""A page that has asked nothing for so long, and waits for nothing, has drawn what it was going to draw."""

LATEST_S = 120.0


@dataclass(frozen=True)
class Taken:
    """What one visit took.

    Attributes:
        what: what was done.
        seconds: how long it took until it was seen.
        paint: it is a first paint, not an interaction.
    """

    what: str
    seconds: float
    paint: bool = False


class Watch:
    """Counts what a page has asked of the server and not been answered."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._open: set[object] = set()
        self._last = time.perf_counter()
        page.on("request", self._asked)
        page.on("requestfinished", self._answered)
        page.on("requestfailed", self._answered)

    def _asked(self, request: object) -> None:
        if "tick" not in (getattr(request, "post_data", None) or ""):
            self._open.add(request)
            self._last = time.perf_counter()

    def _answered(self, request: object) -> None:
        if request in self._open:
            self._open.discard(request)
            self._last = time.perf_counter()

    def settled(self, began: float) -> float:
        """Wait until everything was answered and drawn; returns the seconds from `began` to the last answer."""
        while time.perf_counter() - began < LATEST_S:
            self.page.wait_for_timeout(20)
            quiet = (time.perf_counter() - self._last) * 1000.0 > IDLE_MS
            if quiet and not self._open and self.page.evaluate(QUIET):
                return max(self._last, began) - began
        return LATEST_S


def visits(page: Page, address: str, run: str) -> Iterator[Taken]:
    """Visit every page, then do what people do most, and yield what each took."""
    watch = Watch(page)
    for path in PATHS:
        began = time.perf_counter()
        page.goto(f"{address}/{path}?run={run}", wait_until="commit")
        page.wait_for_selector("#page h1", timeout=LATEST_S * 1000.0)
        heading = time.perf_counter() - began
        yield Taken(f"{path}: heading", heading, paint=True)
        yield Taken(f"{path}: everything drawn", max(watch.settled(began), heading), paint=True)
    page.goto(f"{address}/layers?run={run}")
    watch.settled(time.perf_counter())
    for what, act in (
        ("layers: other metric", lambda: _choose(page, "#layers-metric", "zeros")),
        ("layers: estimated metric", lambda: _choose(page, "#layers-metric", "flushed share, estimated")),
        ("layers: unfold a module", lambda: page.locator("button.layers-module").nth(5).click()),
        ("layers: click a cell", lambda: _click(page, "#layers-figure", 0.5, 100)),
        ("layers: zoom in", lambda: _drag(page, "#layers-figure")),
    ):
        yield _timed(watch, what, act)
    page.goto(f"{address}/spectrum?run={run}")
    watch.settled(time.perf_counter())
    for what, act in (
        ("spectrum: next step", lambda: page.click("#spectrum-back")),
        ("spectrum: as held", lambda: page.locator("#spectrum-scale label").nth(1).click()),
        ("spectrum: other site", lambda: _other(page, "#spectrum-site")),
    ):
        yield _timed(watch, what, act)
    page.goto(f"{address}/timeline?run={run}")
    watch.settled(time.perf_counter())
    yield _timed(watch, "timeline: zoom in", lambda: _drag(page, "#timeline-figure"))
    yield _timed(watch, "timeline: choose a step", lambda: _click(page, "#timeline-figure", 0.5, 100))
    page.goto(f"{address}/whatif?run={run}")
    watch.settled(time.perf_counter())
    yield _timed(watch, "what-if: other scale", lambda: _key(page, "#whatif-scale [role=slider]"))


def _timed(watch: Watch, what: str, act: Callable[[], None]) -> Taken:
    began = time.perf_counter()
    act()
    return Taken(what, watch.settled(began))


def _choose(page: Page, select: str, label: str) -> None:
    page.click(select)
    page.get_by_role("option", name=label, exact=True).click()


def _other(page: Page, select: str) -> None:
    page.click(select)
    page.get_by_role("option").nth(3).click()


def _key(page: Page, slider: str) -> None:
    page.focus(slider)
    page.keyboard.press("ArrowRight")


def _click(page: Page, figure: str, across: float, down: float) -> None:
    box = page.locator(f"{figure} .nsewdrag").first.bounding_box()
    if box:
        page.mouse.move(box["x"] + box["width"] * across - 5.0, box["y"] + down)
        page.mouse.move(box["x"] + box["width"] * across, box["y"] + down)
        page.mouse.down()
        page.mouse.up()


def _drag(page: Page, figure: str) -> None:
    box = page.locator(f"{figure} .nsewdrag").first.bounding_box()
    if box:
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60.0)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60.0, steps=3)
        page.mouse.up()
