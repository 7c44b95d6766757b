"""The other ways in: an armed process, `sys.remote_exec`, a process without ampdoctor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.attach import entrance
from ampdoctor.attach.debuggers import run_in
from ampdoctor.attach.process import process
from ampdoctor.attach.visit import Visit
from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.attached.door import armed_address, folder, knock, listen, sweep
from ampdoctor.record.launch import Recording
from ampdoctor.trace.run import open_run
from tests.attach.attaching import Command, training, undisturbed
from tests.e2e.command import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attach.attaching import Training

NO_DEBUGGER = {"PATH": "/nonexistent"}
needs_debugger = pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb")


def _visited(pid: int, out: Path, started: Training | None = None) -> None:
    """Attach to `pid`, from this process, for two steps, for which a training is let go on."""
    out.mkdir()
    visit = Visit(process(pid), entrance.enter(process(pid), lambda _: None))
    with closing(visit):
        visit.begin(Recording(out=out, every=1, lead=True), 2)
        if started is not None:
            started.let("go", "end")
        assert visit.over.wait(60.0)
    assert visit.error is None
    assert len(open_run(out).steps) == 2


def test_an_armed_process_needs_no_debugger(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "loader", "armed") as started:
        command = Command(started, "--steps", 3, **NO_DEBUGGER)
        command.wait_for("attached to")
        started.let("go", "end")
        command.ended()
        assert started.printed() == undisturbed(tmp_path / "alone", "loader")
    assert len(command.run.steps) == 3


@pytest.mark.skipif(not shutil.which("lldb"), reason="there is no lldb")
def test_lldb_does_where_there_is_no_gdb(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "lldb").symlink_to(str(shutil.which("lldb")))
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started, "--steps", 2, PATH=str(tmp_path / "bin"))
        command.wait_for("attached to")
        started.let("go", "end")
        command.ended()
        assert started.printed() == undisturbed(tmp_path / "alone", "plain")
    assert len(command.run.steps) == 2


@needs_debugger
def test_remote_exec_is_used_where_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger stands in for Python 3.14: it runs the same file in the same place."""
    used: list[int] = []

    def remote_exec(pid: int, script: str) -> None:
        used.append(pid)
        (tmp_path / "work").mkdir()
        run_in(process(pid), f"exec(open({script!r}).read(), {{}})", tmp_path / "work")

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    with training(tmp_path / "attached", "plain") as started:
        _visited(started.pid, tmp_path / "out", started)
        assert used == [started.pid]


@needs_debugger
def test_a_process_that_does_not_find_ampdoctor_is_given_ours(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain", PYTHONPATH="") as started:
        _visited(started.pid, tmp_path / "out", started)
        assert started.printed() == undisturbed(tmp_path / "alone", "plain")


@needs_debugger
def test_where_ampdoctor_cannot_be_imported_that_is_told(tmp_path: Path) -> None:
    source = """
import sys, time
sys.modules["ampdoctor"] = None
print("there", flush=True)
while True: time.sleep(0.01)
"""
    child = subprocess.Popen([sys.executable, "-c", source], env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        with pytest.raises(AmpDoctorError, match="cannot be imported there") as refused:
            _visited(child.pid, tmp_path / "out")
        assert f"{sys.executable} -m pip install ampdoctor" in refused.value.hint
    finally:
        child.kill()
        child.communicate()


def test_a_forked_child_of_an_armed_process_is_not_armed(tmp_path: Path) -> None:
    source = """
import ampdoctor, os, socket, sys
from ampdoctor.record.attached.door import armed_address, knock
ampdoctor.arm()
parent = os.getpid()
child = os.fork()
if not child:
    sys.exit(0 if knock(armed_address(os.getpid())) is None else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), knock(armed_address(parent)) is not None)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment(), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "0 True\n"


def test_the_folder_of_sockets_is_nobody_elses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ampdoctor.record.attached.door._TEMPORARY", tmp_path)
    assert folder().stat().st_mode & 0o777 == 0o700
    folder().chmod(0o755)
    with pytest.raises(AmpDoctorError, match="not a folder of yours alone"):
        armed_address(1)


def test_an_armed_process_that_was_killed_leaves_no_way_in(tmp_path: Path) -> None:
    address = armed_address(os.getpid())
    address.touch()
    try:
        assert knock(address) is None
    finally:
        address.unlink()


def test_what_killed_processes_have_left_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ampdoctor.record.attached.door._TEMPORARY", tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (folder() / f"{pid}-visit").mkdir()
        (folder() / f"{pid}-visit" / "source").touch()
        (folder() / f"{pid}.armed").touch()
    sweep()
    assert sorted(left.name for left in folder().iterdir()) == [f"{os.getpid()}-visit", f"{os.getpid()}.armed"]


def test_another_process_behind_the_address_is_not_let_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Containers that share /tmp have processes of the same number."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        address = armed_address(child.pid)
        try:
            with listen(address), pytest.raises(AmpDoctorError, match="neither gdb nor lldb"):
                entrance.enter(process(child.pid), lambda _: None)
        finally:
            address.unlink()
            child.kill()


def test_importing_ampdoctor_arms_only_where_asked(tmp_path: Path) -> None:
    source = "import ampdoctor, threading; print([t.name for t in threading.enumerate()])"
    told: dict[str, Any] = {}
    for value in ("", "arm"):
        done = subprocess.run(
            [sys.executable, "-c", source], env=environment(AMPDOCTOR=value), capture_output=True, text=True,
            check=True, cwd=tmp_path,
        )  # fmt: skip
        told[value] = done.stdout
    assert told == {"": "['MainThread']\n", "arm": "['MainThread', 'ampdoctor-armed']\n"}
