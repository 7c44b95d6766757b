"""Faulty scripts are told their one true cause first, healthy ones nothing: ours, and the zoo where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.zoo.diagnosed import ROOT_RULES, diagnosed, expectation, unmet_need

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "zoo"
HEALTHY = "healthy"


def scripts(expected: tuple[str, ...]) -> list[ParameterSet]:
    """Return the scripts whose expectation is among `expected`."""
    found = sorted([*(HERE / "scripts").glob("*.py"), *SHARED.glob("[0-9]*.py")])
    return [pytest.param(path, id=path.stem, marks=_marks(path)) for path in found if expectation(path) in expected]


def _marks(script: Path) -> list[pytest.MarkDecorator]:
    need = unmet_need(script)
    return [pytest.mark.xfail(reason=need, strict=True)] if need else []


@pytest.mark.zoo
@pytest.mark.parametrize("script", scripts(ROOT_RULES))
def test_faulty_script_is_told_its_cause(script: Path, tmp_path: Path) -> None:
    told = diagnosed(script, tmp_path / "run")
    assert told.roots[:1] == [expectation(script)]
    assert not told.unsaid


@pytest.mark.zoo
@pytest.mark.parametrize("script", scripts((HEALTHY,)))
def test_healthy_script_is_left_alone(script: Path, tmp_path: Path) -> None:
    told = diagnosed(script, tmp_path / "run")
    assert told.recorded, told.document["examined"]
    assert told.faults == []
    assert not told.unsaid
