"""`ampdoctor memory` of a training that `ampdoctor run` has recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import SCRIPTS, ampdoctor

if TYPE_CHECKING:
    from pathlib import Path

NUMEL = 100 * 32 + (32 * 100 + 100) + 3 * (2 * 32 + (32 * 128 + 128) + (128 * 32 + 32))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run."""
    folder = tmp_path_factory.mktemp("memory")
    process = ampdoctor("run", "--out", "run", SCRIPTS / "memory_training.py", cwd=folder)
    assert (folder / "run" / "run.json").is_file(), process.stderr
    return folder / "run"


def test_json(run: Path) -> None:
    process = ampdoctor("memory", run, "--format", "json", cwd=run.parent)
    assert process.returncode == 0
    found = json.loads(process.stdout)
    assert found["step"] >= 4
    assert list(found["phases"]) == ["forward", "backward", "step", "peak"]
    layouts = {layout["layout"]: layout for layout in found["layouts"]}
    own = layouts["amp-bf16"]
    assert own["own"]
    assert own["components"]["weights"] == 4 * NUMEL
    assert own["components"]["gradients"] == 4 * NUMEL
    assert own["components"]["optimizer"] == 8 * NUMEL + 4 * (2 + 1 + 3 * 6)  # and the counts of steps
    assert layouts["fp32"]["peak_bytes"] > own["peak_bytes"] > layouts["pure-bf16"]["peak_bytes"]
    assert {advice["name"] for advice in found["advice"]} >= {"optimizer-state", "checkpoint"}


def test_text(run: Path) -> None:
    process = ampdoctor("memory", "run", cwd=run.parent)
    assert process.returncode == 0
    assert process.stderr == ""
    for said in ("at the peak on cpu", "peak, largest first", "the same step in", "Autocast saves", "blocks.0.up"):
        assert said in process.stdout
