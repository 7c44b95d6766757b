"""The command as a person types it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SCRIPTS = Path(__file__).resolve().parent / "scripts"
AMPDOCTOR = [sys.executable, "-m", "ampdoctor"]
TIMEOUT_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a command that can import this repository from anywhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AMPDOCTOR_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **variables}


def ampdoctor(*arguments: object, cwd: Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `ampdoctor` with `arguments` to its end."""
    return subprocess.run(
        [*AMPDOCTOR, *map(str, arguments)],
        cwd=cwd,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
