"""Colour where somebody sees it, plain text everywhere else."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from ampdoctor.report.terminal import console, show_diagnosis, show_finding, tell
from ampdoctor.report.text import render
from tests.unit.report.diagnoses import COLLAPSED, UNDERFLOW


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Stdout as a terminal of 60 columns with colours."""
    stream = _Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    # Not sys.stdout itself: pytest puts its own there between set-up and test.
    streams = SimpleNamespace(stdout=stream, stderr=stream)
    monkeypatch.setattr("ampdoctor.report.terminal.sys", streams)
    return stream


def test_a_pipe_gets_the_plain_report(capsys: pytest.CaptureFixture[str]) -> None:
    show_diagnosis(COLLAPSED, console())
    assert capsys.readouterr().out == render(COLLAPSED)


def test_a_terminal_gets_colours_in_its_own_width(terminal: _Terminal) -> None:
    show_diagnosis(COLLAPSED, console())
    assert "\x1b[1;31mHarmed: FP16 gradients underflow" in terminal.getvalue()
    assert max(map(len, render(COLLAPSED).splitlines())) > 60
    assert "61 % of the gradient's elements became zero in FP16, and\n" in terminal.getvalue()


def test_no_color_is_honoured(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    show_diagnosis(COLLAPSED, console())
    colours = [f"\x1b[{code}" for code in ("31", "32", "33", "34", "36", "1;31", "1;32")]
    assert not any(colour in terminal.getvalue() for colour in colours)


def test_a_dumb_terminal_gets_no_escapes(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    show_finding(UNDERFLOW, console())
    show_diagnosis(COLLAPSED, console())
    assert "\x1b" not in terminal.getvalue()


def test_a_live_finding_is_one_short_block() -> None:
    to = Console(file=io.StringIO(), width=200)
    show_finding(UNDERFLOW, to)
    assert isinstance(to.file, io.StringIO)
    assert to.file.getvalue().startswith("ampdoctor: step 0: gradient-underflow: 61 % of the")
    assert len(to.file.getvalue().splitlines()) == 1


def test_a_live_finding_does_not_end_up_behind_a_progress_bar(terminal: _Terminal) -> None:
    show_finding(UNDERFLOW, console())
    assert terminal.getvalue().startswith("\r\x1b[K")


def test_a_message_is_one_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    tell("error: " + "long " * 60 + "[bold]end[/bold]\n", console(stderr=True), hint="do this")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ampdoctor: error: long long")
    assert lines[0].rstrip().endswith("[bold]end[/bold]")
    assert lines[1:] == ["  hint: do this"]
