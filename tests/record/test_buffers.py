"""Running statistics are recorded as a call has left them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from tests.record.recording import Recording


def test_running_statistics_are_recorded_after_the_call(recording: Recording) -> None:
    model = nn.BatchNorm1d(2, momentum=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        model(torch.tensor([[2.0, 0.0], [6.0, 0.0]])).sum().backward()
        optimizer.step()

    mean = recording.tensor("buffer", slot="running_mean")
    assert (mean.module, mean.numel, mean.absmax, mean.zeros) == ("", 2, 2.0, 1)
    assert recording.tensors("buffer", slot="num_batches_tracked") == []


def test_evaluation_leaves_them_alone(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1].eval()
    with recording.start(model=model, every=1):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    assert recording.tensors("buffer") == []
