"""A pytest run that does not use the plugin pays nothing for it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.e2e.command import environment

if TYPE_CHECKING:
    from pathlib import Path

MOST_MS = 10.0

CONFTEST = """
import sys
import pytest

@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    heavy = {"torch", "pyarrow", "numpy", "rich", "typer", "ampdoctor.session", "ampdoctor.config"} & set(sys.modules)
    terminalreporter.write_line(f"plugin: {'ampdoctor.pytest_plugin' in sys.modules}, heavy: {sorted(heavy)}")
"""

TIMED = """
import time
import pytest
began = time.perf_counter()
import ampdoctor.pytest_plugin
print(1000 * (time.perf_counter() - began))
"""


def _python(folder: Path, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_nothing_heavy_is_loaded_and_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_other.py").write_text("def test_other(): assert 1 + 1 == 2\n", encoding="utf-8")
    arguments = ["-W", "error", "-p", "no:dash", "-p", "no:cacheprovider", "--strict-markers"]
    shown = _python(tmp_path, "-m", "pytest", *arguments)
    assert "plugin: True, heavy: []" in shown
    assert "= ampdoctor =" not in shown
    assert "ampdoctor(max_METRIC=" in _python(tmp_path, "-m", "pytest", "-p", "no:dash", "--markers")


def test_loading_it_takes_a_few_milliseconds(tmp_path: Path) -> None:
    # The first may have to compile, and others use the machine meanwhile.
    assert min(float(_python(tmp_path, "-c", TIMED)) for _ in range(5)) < MOST_MS
