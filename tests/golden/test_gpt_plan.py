"""The planned GPT: what its page says is what a plan says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ampdoctor.record.planning.plan import Question, plan

FOLDER = Path(__file__).parents[2] / "sample_runs" / "gpt_1_5b"

ROW = re.compile(r"^\| `([a-z0-9-]+)` \|.*\| (\d+) \| ([\d.*]+) \| ([\d.*]+) \| ([\d.*]+) \|$", re.MULTILINE)


@pytest.mark.slow
def test_the_table_of_the_page_is_that_of_the_plan() -> None:
    rows = ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    told = {name: (int(state), *(cell.strip("*") for cell in cells)) for name, state, *cells in rows}
    assert len(told) == 6
    found = plan(Question(f"{FOLDER / 'model.py'}:gpt_1_5b", optimizer="adamw-fused", layouts=",".join(told)))
    assert found.parameters == 1_557_611_200
    for each in found.layouts:
        state = sum(each.memory.ends["step"][c] for c in ("weights", "master_weights", "gradients", "optimizer"))
        peaks = (f"{each.memory.peaks[phase] / 1e9:.2f}" for phase in ("forward", "backward", "step"))
        assert (round(state / found.parameters), *peaks) == told[each.layout]
