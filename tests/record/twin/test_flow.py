"""What goes into what, and epsilons that half does not have, from the first call of the first step on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.run import Run


def _run(folder: Path) -> Run:
    model = nn.Linear(4, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        with torch.autocast("cpu", dtype=torch.float16):
            h = F.normalize(model(torch.ones(3, 4)), dim=-1, eps=1e-12)
            weights = (h @ h.T / 2).float().softmax(-1)
        weights.diagonal().sum().backward()
        optimizer.step()

    return recorded(folder, train)[1]


def test_the_first_step_is_looked_at_from_its_first_module_on(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    assert [(r.step, r.reason, r.kind) for r in run.twin_steps] == [(0, "start", "local")]
    assert not run.twins


def test_rows_know_whose_results_went_in(tmp_path: Path) -> None:
    rows = {r.op: r for r in _run(tmp_path / "run").ops if r.direction == "forward"}
    linear, guard = rows["aten.addmm"], rows["aten.clamp_min"]
    assert guard.constant == 1e-12
    assert guard.inputs_from == [rows["aten.linalg_vector_norm"].seq]
    assert rows["aten._to_copy"].inputs_from == [-1]
    assert linear.inputs_from == [rows["aten._to_copy"].seq]
    assert linear.constant is None
    # The softmax is computed in FP32, of a product in half.
    scores = rows["aten._softmax"]
    assert (scores.dtype_out, scores.born) == ("float32", 0)
    assert rows["aten.mm"].seq in {s for r in rows.values() for s in r.inputs_from or ()}
