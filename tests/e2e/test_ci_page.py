"""docs/ci.md, followed literally on a copy of the sample project, as somebody does who puts ampdoctor into CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ampdoctor.config import load_config
from ampdoctor.gate.settings import policy_of
from tests.e2e.command import REPOSITORY, environment

PAGE = REPOSITORY / "docs" / "ci.md"
SAMPLE = Path(__file__).parent / "sample_project"

pytestmark = pytest.mark.slow


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _bash(text: str, cwd: Path, expected: int = 0, **variables: str) -> str:
    """Run lines as CI does, with this test's interpreter and commands first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=cwd, env=environment(PATH=path, OMP_NUM_THREADS="1", **variables),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == expected, text + process.stdout + process.stderr
    return process.stdout + process.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample project."""
    return Path(shutil.copytree(SAMPLE, tmp_path_factory.mktemp("ci") / "project"))


@pytest.fixture(scope="module")
def followed(project: Path) -> list[str]:
    """What each shell block of the page printed, in its order."""
    outputs = []
    for block in _blocks("bash"):
        exits = re.search(r"# exits with (\d)", block)
        outputs.append(_bash(block, project, int(exits[1]) if exits else 0))
    return outputs


def test_the_page_can_be_followed(followed: list[str]) -> None:
    baseline, good, broken, tests, settings = followed
    assert "of 3 runs" in baseline
    assert "passed" in good
    assert "scaler-disabled" in broken
    assert "2 passed" in tests
    assert re.search(r'^"flushed" = "2%" +# command line$', settings, re.MULTILINE)
    assert re.search(r'^fail-on = "warning" +# .*pyproject\.toml$', settings, re.MULTILINE)


def test_the_settings_of_the_page_are_those_of_the_project(tmp_path: Path) -> None:
    shown = next(block for block in _blocks("toml") if "[tool.ampdoctor.gate]" in block)
    (tmp_path / "pyproject.toml").write_text(shown, encoding="utf-8")
    assert policy_of(load_config(tmp_path).gate) == policy_of(load_config(SAMPLE).gate)


def test_a_run_passes_against_the_baseline_that_is_committed(followed: list[str], project: Path) -> None:
    committed = SAMPLE / "ampdoctor-baseline.json"
    assert "passed" in _bash(f"ampdoctor check runs/new --baseline '{committed}'", project)


@pytest.mark.parametrize("name", [".github/workflows/precision.yml", ".pre-commit-config.yaml"])
def test_what_the_page_shows_of_a_file_is_in_it(name: str) -> None:
    shown = _blocks("yaml")[0 if name.startswith(".github") else 1]
    lines = {line.strip() for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()}
    assert [line for line in shown.splitlines() if line.strip() not in lines] == []


def test_the_hook_passes(project: Path) -> None:
    hooks = yaml.safe_load((SAMPLE / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (hook,) = hooks["repos"][0]["hooks"]
    assert re.search(hook["files"], "train.py")
    assert "passed" in _bash(hook["entry"], project)


def test_the_workflow_gives_the_action_what_it_takes(repository: Path) -> None:
    action = yaml.safe_load((repository / "action.yml").read_text(encoding="utf-8"))
    workflow: dict[str, Any] = yaml.safe_load((SAMPLE / ".github/workflows/precision.yml").read_text(encoding="utf-8"))
    (step,) = [s for s in workflow["jobs"]["precision"]["steps"] if "ampdoctor/" in s.get("uses", "")]
    assert set(step["with"]) <= set(action["inputs"])
    page = PAGE.read_text(encoding="utf-8").partition("## GitHub Action")[2].partition("\n## ")[0]
    assert [name for name in action["inputs"] if f"`{name}`" not in page] == []
