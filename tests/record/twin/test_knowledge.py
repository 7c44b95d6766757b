"""What a recorder learns from its own rows: which scale to try, and when to ask again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.record.twin import opinions
from tests.record.twin.cases import CASES
from tests.record.twin.recorded import EARLY, opinion, recorded, trained, twin_rows
from tests.record.twin.setting import Setting

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.run import Run
    from tests.record.recording import Recording

HALF_WEIGHTS = next(case for case in CASES if case.name == "half-weights")


def best_scale(run: Run) -> int:
    """Return the exponent of the scale that the early second opinion took to be the best."""
    name = next(n for n in opinion(run).counterfactuals if n.startswith("fp16@2^"))
    return int(name.removeprefix("fp16@2^"))


@pytest.mark.parametrize("scale", [2.0**-4, 2.0**6])
def test_a_scale_by_hand_is_divided_out_like_a_scaler_s(tmp_path: Path, scale: float) -> None:
    def run(setting: Setting) -> Run:
        folder = tmp_path / setting.scaled_by
        return recorded(folder, lambda: trained(CASES[0], setting, EARLY + 1))[1]

    by_scaler = run(Setting(scale=scale))
    by_hand = run(Setting(scale=scale, scaled_by="hand"))
    # Weight gradients are seen after the hand has divided them: the largest of all may be missing.
    assert abs(best_scale(by_scaler) - best_scale(by_hand)) <= 1
    (found,) = twin_rows(by_hand, "gradient", "run")
    assert found.loss_scale == (scale if scale > 1.0 else None)


def test_half_gradients_that_were_divided_by_hand_say_nothing_of_other_scales(tmp_path: Path) -> None:
    setting = Setting(scale=2.0**4, scaled_by="hand")
    _, run = recorded(tmp_path / "run", lambda: trained(HALF_WEIGHTS, setting, EARLY + 1))
    scaled = [r for r in run.twins if r.counterfactual.startswith("fp16@")]
    assert {r.role for r in scaled} == {"grad_output", "loss"}
    assert twin_rows(run, "weight_grad", "bf16")


def test_gradients_that_turn_to_zero_are_asked_about(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """From step 8 on they are flushed; step 8 is examined anyhow, and shows it."""
    monkeypatch.setattr(opinions, "SHARE", 0.0)  # on a slow machine step 8 would have a twin of its own
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start():
        for step in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
            (loss * 2.0**-18 if step >= 8 else loss).backward()
            optimizer.step()
    asked = [(r.step, r.reason) for r in recording.run.twin_steps]
    assert (9, "gradient-zeros") in asked
    (whole,) = twin_rows(recording.run, "gradient", "run", 9)
    assert whole.flushed > 0.1 * whole.nonzero
