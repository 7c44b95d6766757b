"""The command run within the test's own process, boundary included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli.app import invoke

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def ampdoctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs `ampdoctor` with the given arguments in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AMPDOCTOR_DEBUG", raising=False)

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = invoke([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
