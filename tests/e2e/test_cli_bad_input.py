"""Bad input to every command: one clear line, a hint, exit code 2, and nothing of the user's touched."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import TIMEOUT_S, ampdoctor, environment
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path


def _assert_told(process: subprocess.CompletedProcess[str], message: str) -> None:
    assert process.returncode == 2, process.stderr
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    error, hint = process.stderr.splitlines()
    assert error.startswith("ampdoctor: error: ")
    assert message in error
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnose", "absent"], "absent does not exist"),
        (["diagnose", "train.py"], "train.py is a file, not a run folder"),
        (["diagnose", "full"], "full is not a run"),
        (["diagnose", "run", "--format", "xml"], "unknown format 'xml'"),
        (["diagnose", "run", "--fail-on", "doom"], "--fail-on"),
        (["diagnose"], "Missing argument"),
        (["explain", "no-such-rule"], "no rule 'no-such-rule'"),
        (["formats", "--format", "xml"], "--format"),
        (["run", "absent.py"], "there is no script absent.py"),
        (["run", "x" * 5000], "cannot read the script xxx"),
        (["diagnose", "x" * 5000], "is not readable: File name too long"),
        (["run", "."], "is a folder without __main__.py"),
        (["run", "-m", "absent_module"], "there is no module absent_module"),
        (["run", "--every", "0", "train.py"], "--every"),
        (["run", "--every", "x", "train.py"], "--every"),
        (["run", "--budget", "1.5", "train.py"], "--budget"),
        (["run", "--out", "full", "train.py"], "full is not empty"),
        (["run", "--out", "full", "--force", "train.py"], "full is not empty"),
        (["run", "--out", "train.py", "train.py"], "cannot write to train.py"),
        (["run", "--out", "train.py/below", "train.py"], "cannot write to train.py/below"),
        (["demo", "--steps", "0"], "--steps"),
    ],
)
def test_the_command_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    _assert_told(ampdoctor(*arguments, cwd=tmp_path), message)
    assert sorted(tmp_path.rglob("*")) == before, "nothing was started, written or removed"


def test_a_default_folder_that_cannot_be_made_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    (tmp_path / "ampdoctor-runs").write_text("a file in the way")
    _assert_told(ampdoctor("run", "train.py", cwd=tmp_path), "cannot write to ampdoctor-runs/train-")
    assert not (tmp_path / "started").exists()


def test_force_replaces_a_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    write_run(tmp_path / "run")
    process = ampdoctor("run", "--out", "run", "train.py", cwd=tmp_path)
    _assert_told(process, "run is not empty")
    assert "--force" in process.stderr
    assert (tmp_path / "run" / "steps-0.arrows").exists()
    process = ampdoctor("run", "--out", "run", "--force", "train.py", cwd=tmp_path)
    assert process.returncode == 0
    assert process.stdout == "trained\n"
    assert not (tmp_path / "run" / "steps-0.arrows").exists()


@pytest.mark.parametrize("command", ["run train.py", "diagnose run"])
def test_a_working_directory_that_is_gone(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    write_run(tmp_path / "run")
    (tmp_path / "train.py").touch()
    verb, _, what = command.partition(" ")
    line = f"rmdir ../gone; exec {sys.executable} -m ampdoctor {verb} {tmp_path / what}"
    process = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path / "gone", env=environment(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    _assert_told(process, "the working directory does not exist any more")
