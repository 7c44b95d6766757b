"""action.yml: its shell steps, executed as a runner does, on a sample run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.command import REPOSITORY, environment

if TYPE_CHECKING:
    from pathlib import Path

ACTION: dict[str, Any] = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
SICK = REPOSITORY / "sample_runs" / "bert_fp16_collapse"
HEALTHY = REPOSITORY / "sample_runs" / "bert_fp16_scaled"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Job:
    """What a runner makes of the Action."""

    code: int
    log: str
    summary: str
    outputs: str


def _act(folder: Path, **given: str) -> Job:
    """Execute the Action's steps with inputs; names have underscores for dashes."""
    inputs = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()}
    inputs |= {"python": sys.executable, **{name.replace("_", "-"): value for name, value in given.items()}}
    files = {"GITHUB_STEP_SUMMARY": folder / "summary.md", "GITHUB_OUTPUT": folder / "outputs"}
    log, code = "", 0
    for step in ACTION["runs"]["steps"]:
        variables = {name: _expanded(text, inputs) for name, text in step["env"].items()}
        where = folder / _expanded(step.get("working-directory", "."), inputs)
        process = subprocess.run(
            [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=where, env=environment(**variables, **{name: str(path) for name, path in files.items()}),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        log, code = log + process.stdout + process.stderr, process.returncode
        if code:
            break
    summary, outputs = (path.read_text(encoding="utf-8") if path.exists() else "" for path in files.values())
    return Job(code, log, summary, outputs)


def _expanded(text: str, inputs: dict[str, str]) -> str:
    values = {**{f"inputs.{name}": value for name, value in inputs.items()}, "github.action_path": str(REPOSITORY)}
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: values[found[1]], text)


def test_expressions_stand_in_variables_only() -> None:
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]] == []
    used = set(re.findall(r"inputs\.([\w-]+)", (REPOSITORY / "action.yml").read_text(encoding="utf-8")))
    assert used == set(ACTION["inputs"])


def test_a_sick_run_fails_the_job_with_annotations_and_a_summary(tmp_path: Path) -> None:
    job = _act(tmp_path, run=str(SICK))
    assert job.code == 1
    assert "::error" in job.log
    assert job.summary.count("|") > 10
    assert job.outputs == "exit-code=1\n"


def test_inputs_of_several_lines_reach_the_command(tmp_path: Path) -> None:
    limits = "flushed=100%\n\n  flushed@*=100%\n"
    job = _act(tmp_path, run=str(SICK), max=limits, select="AMP6*\namp-slower", fail_on="error")
    assert (job.code, job.outputs) == (0, "exit-code=0\n"), job.log
    assert "flushed" in job.summary
    assert _act(tmp_path, run=str(HEALTHY), max="min_scale=2^40").code == 1


def test_a_mistake_fails_in_one_line_and_leaves_no_summary(tmp_path: Path) -> None:
    job = _act(tmp_path, run=str(SICK), max="flushd=1%")
    assert (job.code, job.summary) == (2, "")
    assert "unknown metric 'flushd'" in job.log


def test_no_input_is_executed(tmp_path: Path) -> None:
    job = _act(tmp_path, run="$(touch executed)", baseline="; touch executed", ignore="`touch executed`")
    assert job.code == 2
    assert not (tmp_path / "executed").exists()


def test_settings_are_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "ampdoctor.toml").write_text('[gate]\nfail-on = "never"\n', encoding="utf-8")
    run = os.path.relpath(SICK, tmp_path / "inner")
    assert _act(tmp_path, run=run, working_directory="inner").code == 0
