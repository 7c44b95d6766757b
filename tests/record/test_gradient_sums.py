"""Half gradients that several backward passes add up to, beside the same sum in FP32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from tests.record.recording import Recording


def _accumulate(
    recording: Recording, micro_batches: int, *, dtype: torch.dtype = torch.bfloat16, halve: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient that micro-batches of nearly equal gradients add up to, and their exact sum."""
    torch.manual_seed(1)
    model = nn.Linear(8, 1, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    exact = torch.zeros(1, 8)
    with recording.start(model=model, optimizer=optimizer):
        for number in range(micro_batches):
            x = (1.0 + 0.1 * torch.randn(1, 8)).to(dtype)
            model(x).sum().backward()
            exact += x.float()
            assert model.weight.grad is not None
            if halve and number == 5:
                model.weight.grad.div_(2.0)
        assert model.weight.grad is not None
        gradient = model.weight.grad.float()
        optimizer.step()
    return gradient, exact  # fmt: skip


def test_the_sum_is_compared_with_that_in_fp32(recording: Recording) -> None:
    gradient, exact = _accumulate(recording, 700)
    row = recording.tensor("weight_grad")
    assert row.additions == 699
    assert row.sum_norm_ratio == pytest.approx(float(gradient.norm() / exact.norm()), rel=1e-3)
    assert (row.sum_norm_ratio or 1.0) < 0.8
    assert row.sum_cosine == pytest.approx(1.0, abs=0.01)


def test_a_few_additions_lose_nothing(recording: Recording) -> None:
    _accumulate(recording, 4)
    row = recording.tensor("weight_grad")
    assert row.additions == 3
    assert row.sum_norm_ratio == pytest.approx(1.0, abs=0.01)


def test_one_pass_adds_nothing(recording: Recording) -> None:
    _accumulate(recording, 1)
    assert recording.tensor("weight_grad").additions is None


def test_fp32_is_left_alone(recording: Recording) -> None:
    _accumulate(recording, 4, dtype=torch.float32)
    assert recording.tensor("weight_grad").additions is None


def test_what_code_has_changed_meanwhile_begins_anew(recording: Recording) -> None:
    _accumulate(recording, 10, halve=True)
    row = recording.tensor("weight_grad")
    assert row.additions == 4
    assert row.sum_norm_ratio == pytest.approx(1.0, abs=0.02)
