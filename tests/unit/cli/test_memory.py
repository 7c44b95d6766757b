"""`ampdoctor memory`: what is printed, what is refused, and the way to `memory plan`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.cli import memory as command
from ampdoctor.trace.builder import RunBuilder
from tests.unit.analysis.memory.runs import amp_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

WITHOUT = Path(__file__).parents[3] / "sample_runs" / "served_in_one_block"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any folder holds a run of one step."""
    monkeypatch.setattr(command, "open_run", lambda _: amp_run().build())


@pytest.mark.usefixtures("recorded")
def test_text(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "runs/a", "--phase", "backward")
    assert outcome.code == 0
    assert outcome.out.startswith("Step 0: 13.5 MiB at the peak on cpu.\nRun   runs/a\n")
    assert "after backward, largest first" in outcome.out


@pytest.mark.usefixtures("recorded")
def test_json(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "runs/a", "--step", "0", "--format", "json")
    found = json.loads(outcome.out)
    assert (found["run"], found["step"], found["device"]) == ("runs/a", 0, "cpu")
    assert [layout["layout"] for layout in found["layouts"] if layout["own"]] == ["amp-bf16"]


@pytest.mark.usefixtures("recorded")
def test_a_step_without_memory_names_those_with_it(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "runs/a", "--step", "7")
    assert outcome.code == 2
    assert "the memory of step 7 was not recorded" in outcome.err
    assert "that of step 0 was" in outcome.err


def test_a_moment_that_was_not_recorded_names_those_that_were(
    ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = RunBuilder().step().memory("step", "weights", 8).memory("peak", "weights", 8).build()
    monkeypatch.setattr(command, "open_run", lambda _: built)
    outcome = ampdoctor("memory", "runs/a", "--phase", "forward")
    assert outcome.code == 2
    assert "step 0 has no moment 'forward'" in outcome.err
    assert "it has step, peak" in outcome.err


def test_a_run_without_memory_says_why_and_what_to_do(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", WITHOUT)
    assert outcome.code == 2
    assert "this run has recorded no memory" in outcome.err
    assert "hint: record more than four steps" in outcome.err


def test_a_missing_folder_is_an_error(ampdoctor: Ampdoctor) -> None:
    assert ampdoctor("memory", "nowhere").code == 2


class _Planning(ModuleType):
    """Plans."""

    def add_plan_arguments(self, parser: Any) -> None:
        parser.add_argument("target")
        parser.add_argument("--format", default="text")

    def plan_command(self, options: Any) -> int:
        sys.stdout.write(f"planned {options.target} {options.format}\n")
        return 5


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for what plans."""
    module = _Planning("ampdoctor.cli.memory_plan", "Plans.")
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("planning")
def test_plan_has_options_of_its_own(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "plan", "--format", "json", "models:gpt")
    assert (outcome.code, outcome.out) == (5, "planned models:gpt json\n")


@pytest.mark.usefixtures("planning")
def test_plan_has_help_of_its_own(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "plan", "--help")
    assert outcome.code == 0
    assert outcome.out.startswith("usage: ampdoctor memory plan")


@pytest.mark.usefixtures("planning")
def test_bad_usage_of_plan_is_a_line_and_a_hint(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("memory", "plan")
    assert outcome.code == 2
    assert "the following arguments are required: target" in outcome.err
    assert "see `ampdoctor memory plan --help`" in outcome.err


def test_without_planning_it_says_so(ampdoctor: Ampdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PLANNING", "ampdoctor.cli.no_such_module")
    outcome = ampdoctor("memory", "plan", "models:gpt")
    assert outcome.code == 2
    assert "for a run folder called plan, give ./plan" in outcome.err
