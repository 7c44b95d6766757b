"""What can't be attached to is told in a line, with what helps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ampdoctor.attach.process import _read, process
from ampdoctor.errors import AmpDoctorError
from tests.attach.attaching import wait_until
from tests.e2e.command import ampdoctor, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 65534


LIKE_TORCH = """
import mmap, os, tempfile
with tempfile.NamedTemporaryFile(prefix="libtorch") as file:
    file.write(b" ")
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0)
"""
"""A process that seems to have loaded torch, which would take a second or two."""


@contextmanager
def _python(source: str, *, user: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has run `source` and lives on."""
    wait = "import time, sys; print('there', flush=True); time.sleep(100)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{source}\n{wait}"], env=environment(), stdout=subprocess.PIPE, text=True, user=user
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def _refused(pid: int, cwd: Path, **variables: str) -> str:
    outcome = ampdoctor("attach", pid, cwd=cwd, **variables)
    assert outcome.returncode == 2, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not list(cwd.iterdir())
    return " ".join(outcome.stderr.split())


def test_no_process(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert f"there is no process {ended.pid}" in _refused(ended.pid, tmp_path)


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert "has ended" in _refused(ended.pid, tmp_path)
    finally:
        ended.wait()


def test_no_python(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "100"])
    try:
        assert "is no Python process" in _refused(child.pid, tmp_path)
    finally:
        child.kill()
        child.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "100"], user=NOBODY)
    try:
        said = _refused(child.pid, tmp_path)
        assert "belongs to another user" in said
        assert f"sudo -u '#{NOBODY}' ampdoctor attach {child.pid}" in said
    finally:
        child.kill()
        child.wait()


def test_a_stopped_process(tmp_path: Path) -> None:
    with _python("") as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert f"kill -CONT {child.pid}" in _refused(child.pid, tmp_path)


def test_a_process_that_another_debugger_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    status = "State:\tt (tracing stop)\nTracerPid:\t4711\n"
    read = _read

    def told(pid: int, name: str) -> str:
        return status if name == "status" else read(pid, name)

    monkeypatch.setattr("ampdoctor.attach.process._read", told)
    with pytest.raises(AmpDoctorError, match="being debugged by process 4711"):
        process(os.getpid())


def test_no_debugger(tmp_path: Path) -> None:
    with _python(LIKE_TORCH) as child:
        said = _refused(child.pid, tmp_path, PATH=str(tmp_path))
        assert "neither gdb nor lldb" in said
        assert "AMPDOCTOR=arm" in said


@pytest.mark.parametrize(
    ("prints", "expected"),
    [
        ("ptrace: Operation not permitted.", "the system does not allow gdb to attach"),
        ('No symbol "Py_AddPendingCall" in current context.', "finds no Python interpreter"),
        ("Segmentation fault", "could not get into"),
        ("", "it printed nothing"),
    ],
)
def test_a_debugger_that_fails(prints: str, expected: str, tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    stub = bin_ / "gdb"
    stub.write_text(f"#!/bin/sh\necho '{prints}'\n", encoding="ascii")
    stub.chmod(0o755)
    (tmp_path / "here").mkdir()
    with _python(LIKE_TORCH) as child:
        assert expected in _refused(child.pid, tmp_path / "here", PATH=f"{bin_}:/bin:/usr/bin")


def test_no_torch(tmp_path: Path) -> None:
    with _python("") as child:
        assert "torch has not been imported there" in _refused(child.pid, tmp_path)


def test_no_model(tmp_path: Path) -> None:
    with _python("import torch, ampdoctor; ampdoctor.arm()") as child:
        assert "no model and no optimizer lives there" in _refused(child.pid, tmp_path)


def test_a_launcher_names_its_children(tmp_path: Path) -> None:
    source = """
import ampdoctor, subprocess, sys; ampdoctor.arm()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open("child", "w").write(str(child.pid))
"""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "here").mkdir()
    with _python(f"import os; os.chdir({str(home)!r}){source}") as launcher:
        wait_until((home / "child").exists, launcher)
        child = int((home / "child").read_text())
        try:
            assert f"try PID {child}" in _refused(launcher.pid, tmp_path / "here")
        finally:
            os.kill(child, signal.SIGKILL)


def test_recorded_already(tmp_path: Path) -> None:
    source = f"""
import torch, ampdoctor; ampdoctor.arm()
recorder = ampdoctor.watch(torch.nn.Linear(1, 1), out={str(tmp_path / "other")!r}, report=False).start()
"""
    (tmp_path / "here").mkdir()
    with _python(source) as child:
        assert "it is being recorded already" in _refused(child.pid, tmp_path / "here")
