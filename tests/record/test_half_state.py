"""Optimizer state in half: what a step leaves as it was, and that a second moment is seen for one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
import torch
from torch import nn

from ampdoctor.record import half_state
from ampdoctor.record.half_state import HALF_STATE_COLUMNS, half_state_counts

if TYPE_CHECKING:
    from tests.record.recording import Recording


@pytest.mark.parametrize("chunk", [7, 1 << 22])
def test_counts_are_those_of_brute_force(chunk: int) -> None:
    before = torch.rand(30, 4).bfloat16()
    gradient = torch.randn(30, 4)
    gradient[:2] = 0.0
    before[:1] = 0.0
    after = (before * 0.999).add(gradient.square().bfloat16(), alpha=0.001)
    with mock.patch.object(half_state, "_CHUNK", chunk):
        found = dict(zip(HALF_STATE_COLUMNS, half_state_counts(before, after, gradient).tolist(), strict=True))
    moves = (gradient != 0) | (before != 0)
    square = gradient.double().square().flatten()
    assert found["expected_to_move"] == int(moves.sum()) == 116
    assert found["unchanged"] == int((moves & (before == after)).sum()) > 0
    cosine = torch.nn.functional.cosine_similarity(square, after.double().flatten(), dim=0)
    assert found["square_cosine"] == pytest.approx(float(cosine))
    assert found["square_ratio"] == pytest.approx(float(square.sum() / after.double().sum()))  # fmt: skip


def test_the_first_step_of_a_second_moment_shows_its_beta(recording: Recording) -> None:
    model = nn.Linear(6, 3).bfloat16()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.998))
    with recording.start(model=model, optimizer=optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 6).bfloat16()).float().square().sum().backward()
            optimizer.step()
    first = recording.tensor("optimizer_state", slot="weight.exp_avg_sq", step=0)
    assert first.square_cosine == pytest.approx(1.0, abs=1e-3)
    assert first.square_ratio == pytest.approx(1.0 / (1.0 - 0.998), rel=0.01)
    assert (first.expected_to_move, first.unchanged) == (18, 0)
    mean = recording.tensor("optimizer_state", slot="weight.exp_avg", step=0)
    assert mean.square_cosine is not None
    assert mean.square_cosine < 0.95


def test_state_in_fp32_has_no_such_numbers(recording: Recording) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters())
    with recording.start(model=model, optimizer=optimizer):
        model(torch.randn(4, 6)).sum().backward()
        optimizer.step()
    row = recording.tensor("optimizer_state", slot="weight.exp_avg_sq")
    assert (row.expected_to_move, row.unchanged, row.square_ratio) == (None, None, None)
