"""A gradient just before autograd casts it down, against the cast itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.formats import BF16, FP16
from ampdoctor.trace.histograms import histogram_of
from tests.record.stats.reference import expected

if TYPE_CHECKING:
    from tests.record.recording import Recording

FORMATS = {"float16": FP16, "bfloat16": BF16}


class _Net(nn.Module):
    """An FP32 head behind a half body: its gradient is cast on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 64, bias=False), nn.Linear(64, 3, bias=False)

    def forward(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            x = self.body(x)
        return torch.as_tensor(self.head(x.float()))


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_row_holds_what_the_cast_flushes(recording: Recording, dtype: str) -> None:
    model = _Net()
    with torch.no_grad():
        # Gradients from 2^-60 to 2^0: most of them are too small for FP16.
        model.head.weight.copy_(torch.randn(3, 64) * torch.exp2(-torch.arange(64.0)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[torch.Tensor] = []
    with recording.start(model=model, every=1):
        hidden: list[torch.Tensor] = []
        handle = model.body.register_forward_hook(lambda _m, _i, out: hidden.append(out))
        loss = F.cross_entropy(model(torch.randn(8, 4), getattr(torch, dtype)), torch.arange(8) % 3)
        hidden[0].register_hook(seen.append)
        loss.backward()
        optimizer.step()
        handle.remove()

    (row,) = [r for r in recording.tensors("grad_output", slot="cast") if r.module == "body"]
    arrived = recording.tensor("grad_output", module="body", slot="out")
    assert (row.dtype, row.cast_to, arrived.dtype) == ("float32", dtype, dtype)
    (half,) = seen
    assert half.dtype is getattr(torch, dtype)
    flushed = int((half == 0).sum()) - row.zeros
    assert flushed == histogram_of(row).flushed(FORMATS[dtype]) == arrived.zeros - row.zeros
    assert (flushed > 50) == (dtype == "float16")
    assert arrived.absmax == expected(half).absmax


def test_no_row_where_nothing_is_cast_down(recording: Recording) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        model(torch.randn(8, 4)).double().sum().backward()
        optimizer.step()
    assert recording.tensors(slot="cast") == []


def test_the_scale_is_that_of_the_loss(recording: Recording) -> None:
    model, scaler = _Net(), torch.amp.GradScaler("cpu", init_scale=32.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        for scale in (scaler.scale, lambda loss: loss):
            scale(model(torch.randn(8, 4), torch.float16).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    rows = recording.tensors(slot="cast", module="body")
    assert [r.loss_scale for r in rows] == [32.0, None]


def test_a_second_pass_of_the_same_graph_is_measured_again(recording: Recording) -> None:
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        loss = model(torch.randn(8, 4), torch.float16).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
    assert [r.micro_batch for r in recording.tensors(slot="cast", module="body")] == [0, 1]
    assert [r.micro_batch for r in recording.tensors("grad_output", slot="out", module="body")] == [0, 1]
