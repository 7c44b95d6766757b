"""The boundary: every error is a line, a hint and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor import __version__
from ampdoctor.cli import diagnose as command
from ampdoctor.errors import AmpDoctorError
from tests.recorded import write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

COMMANDS = [
    "run",
    "attach",
    "diagnose",
    "check",
    "baseline",
    "compare",
    "whatif",
    "memory",
    "export",
    "explain",
    "formats",
    "demo",
]


def _break(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(path: Path) -> None:
        raise error

    monkeypatch.setattr(command, "open_run", fail)


def test_the_version_is_shown(ampdoctor: Ampdoctor) -> None:
    assert ampdoctor("--version").out == f"ampdoctor {__version__}\n"


def test_help_lists_every_command_whole(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("--help")
    assert outcome.code == 0
    assert all(f"\n  {name} " in outcome.out for name in COMMANDS)
    assert "..." not in outcome.out.partition("Commands:")[2]


def test_no_command_is_bad_usage_and_shows_the_help(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor()
    assert outcome.code == 2
    assert "Commands:" in outcome.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_plain_help(ampdoctor: Ampdoctor, name: str) -> None:
    outcome = ampdoctor(name, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: ampdoctor {name}")
    assert outcome.out.isascii()


@pytest.mark.parametrize(
    "arguments",
    [["diagnoze"], ["--nope"], ["diagnose"], ["diagnose", "a", "b"], ["run"], ["run", "--nope", "x"],
     ["run", "--every", "0", "x"], ["run", "--budget", "2", "x"], ["formats", "--format", "xml"],
     ["diagnose", "x", "--fail-on", "x"], ["demo", "--steps", "1"]],
)  # fmt: skip
def test_bad_usage_is_a_line_and_a_hint(ampdoctor: Ampdoctor, arguments: list[str]) -> None:
    outcome = ampdoctor(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    error, hint = outcome.err.splitlines()
    assert error.startswith("ampdoctor: error: ")
    assert hint.startswith("  hint: see `ampdoctor")


def test_bad_input_keeps_its_exit_code_and_hint(ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, AmpDoctorError("no good", hint="mend it", exit_code=7))
    outcome = ampdoctor("diagnose", "x")
    assert outcome.code == 7
    assert outcome.err == "ampdoctor: error: no good\n  hint: mend it\n"


def test_a_defect_is_one_line_that_asks_for_a_report(ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, ZeroDivisionError("oh"))
    outcome = ampdoctor("diagnose", "x")
    assert outcome.code == 3
    error, hint = outcome.err.splitlines()
    assert error == "ampdoctor: internal error: ZeroDivisionError: oh"
    assert "report" in hint


@pytest.mark.parametrize("by", ["option", "variable"])
def test_the_traceback_is_shown_on_request(ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    _break(monkeypatch, ZeroDivisionError("oh"))
    if by == "variable":
        monkeypatch.setenv("AMPDOCTOR_DEBUG", "1")
    outcome = ampdoctor(*(["--debug"] if by == "option" else []), "diagnose", "x")
    assert outcome.code == 3
    assert "Traceback" in outcome.err


def test_an_interrupt_is_no_defect(ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, KeyboardInterrupt())
    outcome = ampdoctor("diagnose", "x")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_bad_settings_are_told_before_anything_is_examined(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ampdoctor]\ntypo = 1\n", encoding="utf-8")
    write_run(tmp_path / "run")
    (tmp_path / "train.py").write_text("print('started')", encoding="utf-8")
    for arguments in (["diagnose", "run"], ["run", "train.py"]):
        outcome = ampdoctor(*arguments)
        assert outcome.code == 2
        assert "unknown key typo" in outcome.err
    assert not (tmp_path / "ampdoctor-runs").exists()
