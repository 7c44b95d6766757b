"""The sample runs: their traces are judged as expected, and tell what the README says of them."""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from ampdoctor.trace.run import open_run
from tools.bless import expected, sample_folders

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.run import Run

FOLDERS = sample_folders()
MAX_BYTES = 400_000
BATCHES = 8


def sample(name: str) -> Run:
    """Open the trace of a sample."""
    return open_run(next(folder for folder in FOLDERS if folder.name == name))


def losses(name: str) -> list[float]:
    """Return the loss of each step of a sample, in the unit of its script."""
    return [step.loss for step in sample(name).steps if step.loss is not None]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_diagnosis_is_the_expected_one(folder: Path) -> None:
    assert expected(folder) == (folder / "expected.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_trace_is_small_enough_to_commit(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.glob("*.arrows")) < MAX_BYTES


def test_the_collapse_is_found_by_its_cause() -> None:
    diagnosis = json.loads((FOLDERS[0].parent / "bert_fp16_collapse" / "expected.json").read_text(encoding="utf-8"))
    assert diagnosis["findings"][0]["name"] == "gradient-underflow"


@pytest.mark.parametrize("name", ["bert_fp32", "bert_bf16", "bert_fp16_scaled"])
def test_the_cures_and_the_twin_are_healthy(name: str) -> None:
    diagnosis = json.loads((FOLDERS[0].parent / name / "expected.json").read_text(encoding="utf-8"))
    assert [f["name"] for f in diagnosis["findings"] if f["severity"] != "note"] == []


def ends(name: str) -> tuple[float, float]:
    """Return the mean loss of the first and of the last steps: single batches differ."""
    curve = losses(name)
    return fmean(curve[:BATCHES]), fmean(curve[-BATCHES:])


def test_the_collapsed_loss_stays_and_the_others_fall() -> None:
    start, end = ends("bert_fp32")
    learned = start - end
    assert learned > 0.25 * start
    stuck_start, stuck_end = ends("bert_fp16_collapse")
    assert abs(stuck_start - stuck_end) < 0.1 * learned
    for cure in ("bert_bf16", "bert_fp16_scaled"):
        cured_start, cured_end = ends(cure)
        assert cured_start - cured_end > 0.9 * learned
