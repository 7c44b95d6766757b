"""The step's modules are timed in other precisions, and nothing of that reaches the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.record import models
from tests.record.recording import Recording
from tests.record.training import Training

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 6
SCALE = 2.0**4
"""No gradient overflows at it: a skipped step has no optimizer's step to be timed before."""


def _timed(folder: Path, prove: bool | None = True, **settings: Any) -> tuple[Recording, Any]:
    recording, training = Recording(folder), Training(init_scale=SCALE, **settings)
    with recording.start(prove=prove, strict=True):
        outcome = training.run(STEPS)
    return recording, outcome


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_each_precision_is_timed_and_the_runs_own_is_known(precision: str, tmp_path: Path) -> None:
    recording, _ = _timed(tmp_path / "run", precision=precision)
    rows = recording.run.paces
    assert [row.setting for row in rows] == ["fp32", "bf16", "fp16"]
    assert [row.setting for row in rows if row.own] == [precision]
    for row in rows:
        assert (row.step, row.rounds, row.device, row.declined) == (3, 3, "cpu", None)
        assert 0.0 < row.fastest_ms <= row.wall_ms <= row.slowest_ms  # type: ignore[operator]


@pytest.mark.parametrize(
    "settings",
    [
        {"model": models.ConvNet, "precision": "fp16"},
        {"model": models.Transformer, "precision": "bf16"},
        {"model": models.Recurrent, "precision": "fp16", "accumulate": 2},
        {"model": models.Tied},
    ],
)
def test_the_training_is_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    recording, outcome = _timed(tmp_path / "run", **settings)
    assert [row.setting for row in recording.run.paces if row.wall_ms] == ["fp32", "bf16", "fp16"]
    assert outcome == Training(init_scale=SCALE, **settings).run(STEPS)


def test_half_weights_are_not_timed(tmp_path: Path) -> None:
    recording, _ = _timed(tmp_path / "run", weights=torch.bfloat16)
    (row,) = recording.run.paces
    assert (row.setting, row.wall_ms) == ("none", None)
    assert "the weights are in half" in (row.declined or "")


@pytest.mark.parametrize("prove", [None, False])
def test_nothing_is_timed_unasked(prove: bool | None, tmp_path: Path) -> None:
    recording, _ = _timed(tmp_path / "run", prove)
    assert recording.run.paces == []


class _Picky(nn.Module):
    """Works in FP32 and in the precision that it was written for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        if out.dtype == torch.float16:
            raise TypeError("no FP16 here")
        return out


def test_a_model_that_fails_in_one_precision_is_timed_in_the_others(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recording, net = Recording(tmp_path / "run"), _Picky()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with recording.start(prove=True, strict=True):
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = net(torch.randn(4, 8)).float().square().mean()
            loss.backward()
            optimizer.step()
    rows = recording.run.paces
    assert [row.setting for row in rows] == ["fp32", "bf16"]
    assert all("TypeError: no FP16 here" in (row.declined or "") for row in rows)


def test_what_each_precision_keeps_for_the_backward_pass_is_measured(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recording = Recording(tmp_path / "run")
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with recording.start(prove=True, strict=True):
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(torch.randn(32, 8)).square().mean().backward()
            optimizer.step()
    kept = {row.setting: row.kept_bytes for row in recording.run.paces}
    # The batch and tanh's result, which the second layer keeps as well; the weights are no activations.
    assert kept["fp32"] == 4 * (32 * 8 + 32 * 16)
    # In half, and the half copy of the second weight; of the first, whose input needs no gradient, none is kept.
    assert kept["bf16"] == kept["fp16"] == 2 * (32 * 8 + 32 * 16 + 4 * 16)
