"""Run a training script under plain `ampdoctor run` in a fresh process, and read what it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampdoctor.engine import diagnose
from ampdoctor.report.json import render
from ampdoctor.rules import discover
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from pathlib import Path

ROOT_RULES = tuple(rule.name for rule in discover())
"""Every rule there is; a script that expects another is waiting for it."""


@dataclass(frozen=True)
class Told:
    """What the diagnosis says."""

    document: dict[str, Any]

    @property
    def roots(self) -> list[str]:
        """Names of all root findings, worst first."""
        return [f["name"] for f in self.document["findings"]]

    @property
    def faults(self) -> list[str]:
        """Names of the root findings of severity warning or error, worst first."""
        findings = self.document["findings"]
        return [f["name"] for f in findings if f["severity"] != "note"]

    @property
    def recorded(self) -> bool:
        """Steps were recorded and some of them examined."""
        examined = self.document["examined"]
        return bool(examined["steps"] and examined["examined_steps"])

    @property
    def unsaid(self) -> list[Any]:
        """Rules that crashed."""
        return list(self.document["crashed"])


def diagnosed(script: Path, folder: Path) -> Told:
    """Run `script` unmodified and return its diagnosis."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "AMPDOCTOR_STRICT": "1"}
    command = [sys.executable, "-m", "ampdoctor", "run", "--out", str(folder), str(script)]
    subprocess.run(command, env=environment, capture_output=True, check=False)
    return Told(json.loads(render(diagnose(open_run(folder)))))


def expectation(script: Path) -> str:
    """Return the rule that the header of `script` names; only the tests read it."""
    for line in script.read_text(encoding="utf-8").splitlines():
        if line.startswith("# expect:"):
            return line.split(":", 1)[1].split("(")[0].strip()
    raise AssertionError(f"{script} expects nothing")


def unmet_need(script: Path) -> str | None:
    """Return what the header of `script` says that its diagnosis needs and that we do not have yet."""
    for line in script.read_text(encoding="utf-8").splitlines():
        if line.startswith("# needs:"):
            return line.split(":", 1)[1].strip()
    return None
