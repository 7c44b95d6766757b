"""Streams that are full, closed or without a reader: the training goes on, and a diagnosis says so in one line."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import AMPDOCTOR, TIMEOUT_S, environment
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = " ".join(AMPDOCTOR)


def _shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("ampdoctor", COMMAND)], cwd=folder, env=environment(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "ampdoctor run train.py 2>/dev/full",
        "ampdoctor --debug run train.py 2>/dev/full",
        "ampdoctor run train.py 2>&-",
        "ampdoctor run train.py >&- 2>&-",
        "{ sleep 0.3; ampdoctor run train.py 2>&1 >/dev/null; } | true",
        "ampdoctor run train.py 2>&1 >/dev/null | head -1",
    ],
)
def test_the_training_does_not_mind_a_dead_stderr(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(0.2); open('trained', 'w'); exit(7)")
    process = _shell(line, tmp_path)
    assert process.returncode == 7, process.stderr
    assert (tmp_path / "trained").exists()


@pytest.mark.parametrize("extra", ["", " --format json"])
def test_a_reader_that_leaves_is_no_error(tmp_path: Path, extra: str) -> None:
    write_run(tmp_path / "run")
    process = _shell(f"{{ sleep 0.3; ampdoctor diagnose run{extra}; }} | true", tmp_path)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("extra", ["", " --format json"])
@pytest.mark.parametrize(
    ("to", "message"), [(">/dev/full", "cannot write the output: No space left"), (">&-", "no standard output")]
)
def test_an_output_that_cannot_be_written_is_told(tmp_path: Path, extra: str, to: str, message: str) -> None:
    write_run(tmp_path / "run")
    process = _shell(f"ampdoctor diagnose run{extra} {to}", tmp_path)
    assert process.returncode == 2
    assert process.stderr.startswith("ampdoctor: error: ")
    assert message in process.stderr
    assert "Traceback" not in process.stderr
