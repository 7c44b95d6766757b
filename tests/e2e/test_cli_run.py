"""`ampdoctor run` is `python`: the script cannot tell the difference, and neither can the shell."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import AMPDOCTOR, SCRIPTS, TIMEOUT_S, ampdoctor, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHOW = "import sys; print(sys.argv, __name__, __file__, sys.path[0])\n"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Returns a function that writes `train.py`."""

    def write(source: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(source, encoding="utf-8")
        return path

    return write


def _python(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment(), input=stdin,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b c", ""],
        ["--out", "x", "--help", "-h", "--version", "--debug"],
        ["--", "-m", "--", "-x"],
        ["-m", "module"],
    ],
)
def test_everything_after_the_script_belongs_to_it(
    tmp_path: Path, script: Callable[[str], Path], arguments: list[str]
) -> None:
    script(SHOW)
    expected = _python("train.py", *arguments, cwd=tmp_path)
    process = ampdoctor("run", "train.py", *arguments, cwd=tmp_path)
    assert process.stdout == expected.stdout
    assert process.returncode == 0


@pytest.mark.parametrize("arguments", [["--out", "x", "--help"], ["-m", "--"]])
def test_everything_after_the_module_belongs_to_it(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(SHOW)
    expected = _python("-m", "package.train", *arguments, cwd=tmp_path)
    process = ampdoctor("run", "-m", "package.train", *arguments, cwd=tmp_path)
    assert process.stdout == expected.stdout
    assert process.returncode == 0


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.exit(0)",
        "import sys; sys.exit(1)",
        "import sys; sys.exit(77)",
        "import sys; sys.exit('message')",
        "1 / 0",
        "import os; os._exit(5)",
        "this is no python",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os.abort()",
        "raise SystemExit(300)",
    ],
)
def test_the_exit_code_is_the_scripts_own(tmp_path: Path, script: Callable[[str], Path], source: str) -> None:
    script(source)
    expected = _python("train.py", cwd=tmp_path)
    process = ampdoctor("run", "train.py", cwd=tmp_path)
    assert process.returncode == expected.returncode
    assert process.stdout == expected.stdout
    # The last line of a traceback is the script's; where it was raised differs by no more than what python prints.
    for line in expected.stderr.splitlines():
        assert line in process.stderr


def test_standard_input_is_the_scripts(tmp_path: Path, script: Callable[[str], Path]) -> None:
    script("print(input() + '!')")
    assert ampdoctor("run", "train.py", cwd=tmp_path, stdin="hello\n").stdout == "hello!\n"
    assert ampdoctor("run", "-", cwd=tmp_path, stdin="print(6 * 7)").stdout == "42\n"


def test_the_script_keeps_the_terminal(tmp_path: Path, script: Callable[[str], Path]) -> None:
    script("import sys; print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*AMPDOCTOR, "run", "--quiet", "train.py"], cwd=tmp_path, env=environment(),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.wait(TIMEOUT_S) == 0
    assert b"[True, True, True]" in os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)


def test_a_script_that_records_nothing_is_told_so_and_leaves_nothing(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    script("print('hello')")
    process = ampdoctor("run", "train.py", cwd=tmp_path)
    assert process.stdout == "hello\n"
    assert "ampdoctor: nothing was recorded: torch was not imported" in process.stderr
    assert not (tmp_path / "ampdoctor-runs").exists()


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    process = ampdoctor("run", "--quiet", "--out", "here", SCRIPTS / "fake_training.py", "3", cwd=tmp_path)
    assert process.stdout == "trained\n"
    assert process.stderr == ""


def test_a_run_ends_with_its_diagnosis_on_stderr(tmp_path: Path) -> None:
    process = ampdoctor("run", SCRIPTS / "fake_training.py", "3", "2", cwd=tmp_path)
    (folder,) = (tmp_path / "ampdoctor-runs").glob("fake_training-*")
    assert process.stdout == "trained\n"
    assert f"ampdoctor: recording to ampdoctor-runs/{folder.name}" in process.stderr
    assert "2 steps, 0 of them examined" in process.stderr
    assert f"ampdoctor diagnose ampdoctor-runs/{folder.name}" in process.stderr
    assert '"status": "complete"' in (folder / "run.json").read_text()


def test_a_run_without_a_step_ends_in_one_line(tmp_path: Path) -> None:
    process = ampdoctor("run", "--out", "here", SCRIPTS / "fake_training.py", cwd=tmp_path)
    assert process.stderr.splitlines()[1:] == [
        "ampdoctor: no optimizer step was completed, so there is nothing to diagnose (here)"
    ]


def test_a_finding_is_told_while_the_script_runs(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*AMPDOCTOR, "run", "--out", "here", SCRIPTS / "sick_training.py"],
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        lines = iter(process.stderr)
        assert next(lines).startswith("ampdoctor: recording to")
        assert next(lines).startswith("ampdoctor: step 0: gradient-underflow: ")
        assert process.poll() is None
        process.stdin.close()
        rest = "".join(lines)
    assert process.returncode == 0
    assert "ERROR  gradient-underflow" in rest
    assert "ampdoctor explain gradient-underflow" in rest


def test_a_killed_run_is_diagnosed_and_said_to_be_cut(tmp_path: Path) -> None:
    arguments = ("run", "--no-live", "--out", "here", SCRIPTS / "sick_training.py", "kill")
    process = ampdoctor(*arguments, cwd=tmp_path)
    assert process.returncode == -signal.SIGKILL
    assert "ERROR  gradient-underflow" in process.stderr
    assert "the run was cut" in process.stderr
    assert '"exit_code": -9' in (tmp_path / "here" / "run.json").read_text()
