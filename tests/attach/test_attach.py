"""Attached to in the middle of its training, a process computes what it would have, and is left as it was."""

from __future__ import annotations

import platform
import shutil
import signal
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ampdoctor.cli.attach import _await_first_step
from tests.attach.attaching import Command, training, undisturbed, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not (shutil.which("gdb") or shutil.which("lldb")), reason="there is no debugger")

STEPS = 6
MODES = ("plain", "clipped", "scaled", "skipping", "by_hand", "untold", "closure", "two", "frozen_heap", "loader")


@pytest.mark.parametrize("mode", MODES)
def test_nothing_changes_and_every_step_is_recorded(mode: str, tmp_path: Path) -> None:
    with training(tmp_path / "attached", mode) as started:
        command = Command(started, "--steps", STEPS, "--every", 1)
        command.wait_for("attached to")
        started.let("go")
        command.ended()
        started.let("end")
        assert started.printed() == undisturbed(tmp_path / "alone", mode)
    run = command.run
    assert [s.step for s in run.steps] == list(range(STEPS))
    assert all(s.examined for s in run.steps)
    assert {t.step for t in run.tensors("weight_grad")} == set(range(STEPS))
    assert run.info.status == "complete"


@pytest.mark.skipif(not shutil.which("gdb") or platform.machine() != "x86_64", reason="no gdb that can wake it")
def test_a_main_thread_that_waits_for_the_training_is_woken(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "joined") as started:
        command = Command(started, "--steps", 2)
        command.wait_for("attached to")
        started.let("go", "end")
        command.ended()
        assert started.printed() == undisturbed(tmp_path / "alone", "joined")
    assert len(command.run.steps) == 2


def test_a_recording_that_fails_is_told_to_the_visitor_alone(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started, "--steps", 35)
        command.wait_for("attached to")
        started.let("go")
        started.wait_for("waiting for end")
        shutil.rmtree(command.folder)
        started.let("end")
        assert "stopped recording, the training goes on" in command.ended(2)
        assert started.printed() == undisturbed(tmp_path / "alone", "plain")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "vanishing") as started:
        command = Command(started, "--steps", STEPS)
        command.wait_for("attached to")
        started.let("go", "end")
        assert "gradient-underflow" in command.ended()


def test_a_clip_that_was_imported_before_is_seen(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "clipped") as started:
        command = Command(started, "--steps", STEPS)
        command.wait_for("attached to")
        started.let("go", "end")
        command.ended()
    calls = [c for c in command.run.calls if c.call == "clip_norm"]
    assert [c.step for c in calls] == list(range(STEPS))


def test_ctrl_c_detaches_and_the_diagnosis_is_printed(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started)
        command.wait_for("attached to")
        started.let("go")
        started.wait_for("waiting for end")
        command.process.send_signal(signal.SIGINT)
        command.wait_for("detaching")
        started.let("end")
        assert "healthy" in command.ended()
        assert started.printed() == undisturbed(tmp_path / "alone", "plain")
    assert (
        len(command.run.steps) == 30
    )  # the eleventh was under way; the one after the fortieth was asked to be the last


def test_a_killed_visitor_leaves_nothing_behind(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started)
        command.wait_for("attached to")
        started.let("go")
        started.wait_for("waiting for end")
        command.process.kill()
        command.process.wait()
        started.let("end")
        assert started.printed() == undisturbed(tmp_path / "alone", "plain")
    assert command.run.info.status == "complete"


def test_a_training_that_ends_takes_its_visitor_along(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started)
        command.wait_for("attached to")
        started.let("go", "end")
        assert "healthy" in command.ended()
    assert (command.run.info.status, len(command.run.steps)) == ("complete", 39)


def test_a_training_that_fails_is_told(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain", "fail") as started:
        command = Command(started)
        command.wait_for("attached to")
        started.let("go", "end")
        command.ended()
        assert "RuntimeError: the training fails" in started.err.read_text()
    assert (command.run.info.status, command.run.info.exception) == ("crashed", "RuntimeError: the training fails")


def test_a_training_that_is_killed_is_told(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "plain") as started:
        command = Command(started)
        command.wait_for("attached to")
        started.let("go")
        started.wait_for("waiting for end")
        wait_until(lambda: command.run.steps, command.process)  # what was flushed before it dies is what is promised
        started.process.kill()
        started.process.wait()
        command.ended()
    assert command.run.info.status == "crashed"
    assert [s.step for s in command.run.steps] == list(range(len(command.run.steps)))


def test_again_and_again(tmp_path: Path) -> None:
    with training(tmp_path / "attached", "loader") as started:
        for on in ("go", "more", "end"):
            command = Command(started, "--steps", 2, "--force")
            command.wait_for("attached to")
            (started.folder / on).touch()
            command.ended()
            assert len(command.run.steps) == 2
        assert started.printed() == undisturbed(tmp_path / "alone", "loader")


def test_a_training_that_does_not_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.cli.attach._PATIENCE_S", 0.0)
    said: list[str] = []
    monkeypatch.setattr("ampdoctor.cli.attach.tell", lambda line, *_, **__: said.append(line))
    waiting = SimpleNamespace(recording=Event(), over=Event())
    waiting.wait = lambda seconds: bool(said) or waiting.over.wait(seconds)
    _await_first_step([cast("Any", waiting)], cast("Any", None))
    assert [line.partition(":")[0] for line in said] == ["no step has ended so far"]
