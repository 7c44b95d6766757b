"""The loss in FP32 from the run's own outputs, beside what FP32 really makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from ampdoctor.record.twin.loss_twin import NAME
from tests.record.twin.recorded import EARLY, recorded

if TYPE_CHECKING:
    from pathlib import Path

FP16, BF16 = torch.float16, torch.bfloat16


class _Student(nn.Module):
    """A criterion inside the model or outside it, on logits in half."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 100))

    def forward(self, x: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x)
        return divergence(logits, teacher) if self.inside else logits


def divergence(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return a KL divergence, in the dtype of what it is given."""
    ours, theirs = logits.log_softmax(-1), teacher.to(logits.dtype).log_softmax(-1)
    return (theirs.exp() * (theirs - ours)).sum(-1).mean()


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_it_is_the_criterion_on_outputs_cast_to_fp32(
    tmp_path: Path, dtype: torch.dtype, inside: bool, micro_batches: int
) -> None:
    torch.manual_seed(3)
    model = _Student(inside)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=dtype is FP16)
    expected: list[float] = []
    losses: list[float] = []

    def train() -> None:
        for step in range(EARLY + 1):
            for _ in range(micro_batches):
                x = torch.randn(16, 8)
                with torch.no_grad():
                    teacher = 1.05 * model.layers(x)
                with torch.autocast("cpu", dtype=dtype):
                    out = model(x, teacher.to(dtype))
                loss = out if inside else divergence(out, teacher.to(dtype))
                if step == EARLY:
                    losses.append(loss.item())
                    if not inside:
                        expected.append(divergence(out.detach().float(), teacher).item())
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    _, run = recorded(tmp_path, train)
    rows = [r for r in run.twins if r.counterfactual == NAME]
    assert [(r.step, r.micro_batch) for r in rows] == [(EARLY, n) for n in range(micro_batches)]
    for row, loss in zip(rows, losses, strict=True):
        assert row.value is not None
        assert abs(row.value) < abs(loss) or row.value != loss
    for row, true in zip(rows, expected, strict=False):
        assert row.value == pytest.approx(true, rel=1e-3)


def test_a_loss_in_fp32_is_the_run_s_own(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(EARLY + 1):
            with torch.autocast("cpu", dtype=BF16):
                out = model(torch.randn(8, 4))
            nn.functional.cross_entropy(out.float(), torch.arange(8) % 3).backward()
            optimizer.step()

    _, run = recorded(tmp_path, train)
    own, twin = (
        next(r.value for r in run.twins if r.role == "loss" and r.counterfactual == name) for name in ("run", NAME)
    )
    assert own == twin
