"""Faulty scripts are told their one true cause first, healthy ones nothing: ours, and the zoo where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo.diagnosed import ROOT_RULES, diagnosed, expectation

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "zoo"
HEALTHY = "healthy"


def scripts(expected: tuple[str, ...]) -> list[Path]:
    """Return the scripts whose expectation is among `expected`."""
    found = [*(HERE / "scripts").glob("*.py"), *SHARED.glob("[0-9]*.py")]
    return sorted(path for path in found if expectation(path) in expected)


@pytest.mark.zoo
@pytest.mark.parametrize("script", scripts(ROOT_RULES), ids=lambda path: path.stem)
def test_faulty_script_is_told_its_cause(script: Path, tmp_path: Path) -> None:
    told = diagnosed(script, tmp_path / "run")
    assert told.faults[:1] == [expectation(script)]
    assert not told.unsaid


@pytest.mark.zoo
@pytest.mark.parametrize("script", scripts((HEALTHY,)), ids=lambda path: path.stem)
def test_healthy_script_is_left_alone(script: Path, tmp_path: Path) -> None:
    told = diagnosed(script, tmp_path / "run")
    assert told.faults == []
    assert not told.unsaid
