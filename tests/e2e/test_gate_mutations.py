"""Pull requests to a tiny FP16 training on a CPU: the gate fails those that harm precision, and says why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli.app import invoke
from ampdoctor.engine import diagnose
from ampdoctor.gate import check
from ampdoctor.gate.baseline import Baseline, read_baseline
from ampdoctor.gate.policy import Policy
from ampdoctor.report.gated import reason
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from ampdoctor.gate.result import GateResult

SCRIPT = Path(__file__).parent / "scripts" / "gated_training.py"
PAGE = Path(__file__).parents[2] / "docs" / "ci.md"

HARMFUL = {
    "scale-removed": "gradient-underflow",
    "scale-lowered": "smallest loss scale: 16; it was 65536",
    "clip-before-unscale": "clip-before-unscale",
    "op-in-half": "norm-overflow",
    "lr-x100": "subnormal gradient",
    "init-shrunk": "subnormal gradient of blocks.1.up.out",
}
"""Mutations that harm precision, and what the gate says of the cause."""

HARMLESS = ("batch-halved", "module-renamed", "bf16", "refactored", "another-seed")

pytestmark = pytest.mark.slow


def record(folder: Path, *arguments: str) -> Path:
    """Record the training as CI does."""
    command = [sys.executable, "-m", "ampdoctor", "run", "--every", "4", "--out", str(folder), str(SCRIPT), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "AMPDOCTOR_STRICT": "1"}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    """What two good runs come to, read from the file that is committed."""
    folder = tmp_path_factory.mktemp("good")
    runs = [record(folder / seed, "--seed", seed) for seed in ("0", "1")]
    assert invoke(["baseline", *map(str, runs), "-o", str(folder / "baseline.json")]) == 0
    return read_baseline(folder / "baseline.json")


def gated(folder: Path, baseline: Baseline, mutation: str) -> GateResult:
    """Return what the gate says of a mutation."""
    arguments = ("--seed", "7") if mutation == "another-seed" else (mutation,)
    run = open_run(record(folder, *arguments))
    return check(run, diagnose(run), Policy(), baseline)


@pytest.mark.parametrize("mutation", HARMFUL)
def test_what_harms_precision_fails_by_its_cause(tmp_path: Path, baseline: Baseline, mutation: str) -> None:
    result = gated(tmp_path / "run", baseline, mutation)
    assert not result.passed
    assert HARMFUL[mutation] in "\n".join(map(reason, result.failures))


@pytest.mark.parametrize("mutation", HARMLESS)
def test_what_does_not_passes(tmp_path: Path, baseline: Baseline, mutation: str) -> None:
    result = gated(tmp_path / "run", baseline, mutation)
    assert [reason(failure) for failure in result.failures] == []
    if mutation == "module-renamed":
        assert "body.0.up.weight" in result.new_sites
        assert "blocks.0.up.weight" in result.gone_sites


def test_the_page_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|[^|]+\| (fails|passes) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {**dict.fromkeys(HARMFUL, "fails"), **dict.fromkeys(HARMLESS, "passes")}
