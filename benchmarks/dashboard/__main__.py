"""How fast the dashboard is on a long run, as a person's browser shows it, and the memory that it needs.

    python -m benchmarks.dashboard [--rows 1000000] [--folder FOLDER]

A run is written as the recorder writes one and served by `ampdoctor view` in a process of its own. A browser then opens
every page for the first time and does what people do most.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from benchmarks.dashboard.trace import write_run
from benchmarks.dashboard.visits import visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.dashboard.visits import Taken

RUN = "run"

PAINT_S = 1.5
"""Wanted of a first paint, whatever the number of rows."""

SMALL_ROWS, SMALL_S, LARGE_S = 1_000_000, 0.5, 2.0
"""Wanted of an interaction: the first up to so many rows, the second beyond."""

CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]


def main() -> None:
    """Write the run, serve it, visit it and print what it took."""
    parser = argparse.ArgumentParser(description="How fast the dashboard is on a long run.")
    parser.add_argument("--rows", type=int, default=SMALL_ROWS)
    parser.add_argument("--folder", type=Path, help="keep the run here; visit it again if it is there")
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        root = options.folder or Path(scratch)
        if not (root / RUN).exists():
            write_run(root / RUN, options.rows)
        port = _free_port()
        command = [sys.executable, "-m", "ampdoctor", "view", str(root), "--port", str(port), "--no-open"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address)
            missed = _report(_visited(address), options.rows)
            print(f"\n{options.rows} rows, {_peak_gb(server.pid):.2f} GB at most, {missed} slower than wanted")
        finally:
            server.terminate()
            server.wait()


def _visited(address: str) -> Iterator[Taken]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 960})
        yield from visits(page, address, RUN)
        browser.close()


def _report(found: Iterator[Taken], rows: int) -> int:
    missed = 0
    print(f"{'what':34} {'took':>8} {'wanted':>8}")
    for taken in found:
        wanted = PAINT_S if taken.paint else SMALL_S if rows <= SMALL_ROWS else LARGE_S
        missed += taken.seconds > wanted
        print(
            f"{taken.what:34} {taken.seconds:6.2f} s {wanted:6.2f} s{'  slow' if taken.seconds > wanted else ''}",
            flush=True,
        )
    return missed


def _wait_for(address: str) -> None:
    for _ in range(200):
        try:
            urlopen(address).close()  # noqa: S310 - our own server
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(address)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _peak_gb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) / 1e6


if __name__ == "__main__":
    main()
