"""A real training with sinks: every step arrives, and the training is none the wiser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import ampdoctor
from ampdoctor import session
from ampdoctor.live import Pace
from ampdoctor.trace.run import open_run
from tests.unit.sinks.recording import Kept

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 30


@pytest.fixture(autouse=True)
def _hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "WITHIN_THE_TRAINING", Pace(interval_s=0.001, rest=0.0))


def _train(sinks: list[Kept] | None) -> torch.Tensor:
    """Train in FP16 without a loss scale on losses that are too small for it, and return the weights."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def steps() -> None:
        for _ in range(STEPS):
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.randn(8, 16)).square().mean() * 1e-7
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    if sinks is None:
        steps()
    else:
        with ampdoctor.watch(model, out="run", report=False, sinks=sinks):
            steps()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_every_step_of_a_training_arrives_once_with_its_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept()
    _train([kept])
    recorded = open_run(tmp_path / "run")
    assert [m.step for m in kept.steps] == [row.step for row in recorded.steps] == list(range(STEPS))
    examined = [m.step for m in kept.steps if "ampdoctor/gradient_absmax" in m.values]
    assert examined == [row.step for row in recorded.steps if row.examined]
    (diagnosis,) = kept.diagnoses
    names = [finding.name for finding in kept.findings]
    assert {finding.name for finding in diagnosis.faults} <= set(names)
    assert len(set(names)) == len(names)
    assert kept.closed == 1
    assert capsys.readouterr().err == ""


def test_the_training_comes_out_the_same_to_the_bit_with_a_sink_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("tracker is gone")

    kept = Kept()
    monkeypatch.setattr(kept, "metrics", fail)
    assert torch.equal(_train([kept]), _train(None))
    assert "nothing more goes to Kept: RuntimeError: tracker is gone" in capsys.readouterr().err
