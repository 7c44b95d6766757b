"""`ampdoctor diagnose`: the right words on stdout and the right exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli import diagnose as command
from ampdoctor.finding import Severity
from ampdoctor.report import json as json_report
from ampdoctor.report import text as text_report
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED, HEALTHY, LOST, NOTE, UNTIDY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.engine import Diagnosis
    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

WARNED = replace(COLLAPSED, findings=(LOST,))
NOTED = replace(COLLAPSED, findings=(NOTE,))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Diagnosis], None]:
    """Returns a function that says what the engine finds in the run `run`."""
    write_run(tmp_path / "run")

    def finds(diagnosis: Diagnosis) -> None:
        monkeypatch.setattr("ampdoctor.cli.diagnose.engine.diagnose", lambda run, config: diagnosis)

    return finds


@pytest.mark.parametrize(
    ("diagnosis", "codes"),
    [  # for --fail-on error, warning, note, never
        (HEALTHY, (0, 0, 0, 0)),
        (NOTED, (0, 0, 1, 0)),
        (WARNED, (0, 1, 1, 0)),
        (COLLAPSED, (1, 1, 1, 0)),
        (UNTIDY, (3, 3, 3, 0)),
    ],
)
def test_exit_codes(
    ampdoctor: Callable[..., Outcome], found: Callable[[Diagnosis], None], diagnosis: Diagnosis, codes: tuple[int, ...]
) -> None:
    found(diagnosis)
    limits = ("error", "warning", "note", "never")
    assert tuple(ampdoctor("diagnose", "run", "--fail-on", limit).code for limit in limits) == codes
    assert ampdoctor("diagnose", "run").code == codes[1]


def test_text_is_the_default_and_goes_to_stdout(
    ampdoctor: Callable[..., Outcome], found: Callable[[Diagnosis], None]
) -> None:
    found(COLLAPSED)
    outcome = ampdoctor("diagnose", "run")
    assert outcome.out == text_report.render(COLLAPSED)
    assert outcome.err == ""


def test_json_is_nothing_but_json(ampdoctor: Callable[..., Outcome], found: Callable[[Diagnosis], None]) -> None:
    found(COLLAPSED)
    outcome = ampdoctor("diagnose", "run", "--format", "json")
    assert outcome.out == json_report.render(COLLAPSED)
    assert outcome.err == ""


def test_a_real_run_is_diagnosed(ampdoctor: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    outcome = ampdoctor("diagnose", "run", "--format", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["examined"]["steps"] == 3


def test_every_severity_can_be_the_limit() -> None:
    limits = {limit.value for limit in command.FailOn}
    assert limits == {severity.value for severity in Severity} | {"never"}
