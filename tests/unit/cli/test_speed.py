"""`ampdoctor speed` prints where the time went, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

RUN = Path(__file__).parents[3] / "sample_runs" / "tiny_layers"


def test_the_page_names_casts_and_operations(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("speed", RUN)
    assert outcome.code == 0
    assert outcome.out.startswith("Step 4: its operations took ")
    for line in ("casts", "FP32 under autocast", "by dtype", "aten.addmm", "by module"):
        assert line in outcome.out
    assert "Not measured: record with `ampdoctor run --prove`." in outcome.out


def test_shares_in_json_are_of_the_whole(ampdoctor: Ampdoctor) -> None:
    found = json.loads(ampdoctor("speed", RUN, "--format", "json").out)
    assert (found["step"], found["measured_on"]) == (4, "host")
    assert sum(entry["ms"] for entry in found["by"]["operation"]) == pytest.approx(found["total_ms"])
    casts = sum(e["ms"] for e in found["by"]["operation"] if e["name"] == "aten._to_copy")
    assert 0.0 < found["shares"]["casts"] <= casts / found["total_ms"]


def test_a_step_that_was_not_timed_is_told(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("speed", RUN, "--step", 5)
    assert (outcome.code, outcome.out) == (2, "")
    assert "the operations of step 5 were not timed" in outcome.err


def test_a_run_without_times_is_told(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("speed", RUN.parent / "served_in_one_block")
    assert (outcome.code, outcome.out) == (2, "")
    assert "this run has timed no operations" in outcome.err
