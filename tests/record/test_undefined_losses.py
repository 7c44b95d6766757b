"""Losses that are NaN in every format: what their graphs tell, and where half precision may be to blame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampdoctor.record.undefined import undefined_operation
from tests.record.training import Outcome, seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.recording import Recording

    Loss = Callable[[torch.Tensor], torch.Tensor]

NONE = torch.zeros(4)
ONE = torch.tensor([1.0, 0.0, 0.0, 0.0])
IGNORED = torch.tensor([-100, -100])


@pytest.mark.parametrize(
    ("loss", "operation"),
    [
        (lambda x: (x * NONE).sum() / NONE.sum(), "div"),
        (lambda x: ((x - 1).square() * ONE).view(2, 2).sum(1).div(ONE.view(2, 2).sum(1)).mean(), "div"),
        (lambda x: 0.5 * ((x * NONE).sum() / NONE.sum()) + x.sum(), "div"),
        (lambda x: x[ONE > 1].mean(), "mean"),
        (lambda x: x.view(1, 4)[:0].mean(dim=-2).sum(), "mean"),
        (lambda x: F.cross_entropy(x.view(2, 2), IGNORED), "nll_loss"),
        (lambda x: F.mse_loss(x[:0], NONE[:0]), "mse_loss"),
        (lambda x: F.smooth_l1_loss(x[:0].float(), NONE[:0]), "smooth_l1_loss"),
    ],
)
@pytest.mark.parametrize("half", [False, True])
def test_what_no_format_gives_a_value_to(loss: Loss, operation: str, half: bool) -> None:
    x = torch.ones(4, requires_grad=True)
    root = loss(x.bfloat16().float() if half else x)
    assert not root.isfinite()
    assert undefined_operation(root) == operation


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: (x * math.nan).sum() / NONE.sum(),
        lambda x: (x.half() * 1e5).float().mul(ONE).sum() / ONE.sum(),
        lambda x: x.sum() / (x.detach() * 1e-9).half().float().sum(),
        lambda x: (x / torch.tensor([0.25, 0.0, 1.0, 2.0])).sum(),
        lambda x: (x.half() / NONE.half()).float().sum(),
        lambda x: torch.where(ONE > 0, x / ONE, x).sum() * math.inf,
        lambda x: (x * 1e-9).half().float().log().sum(),
        lambda x: F.cross_entropy(x.view(2, 2), IGNORED, reduction="sum") * math.nan,
        lambda x: checkpoint(lambda y: (y * NONE).sum() / NONE.sum(), x, use_reentrant=True),
    ],
    ids=[
        "NaN came in", "overflow in half came in", "flushed before", "not a count", "in half", "not selected",
        "logarithm of what was flushed", "a sum of nothing", "within a user's function",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*use_reentrant")
def test_what_half_precision_may_have_made(loss: Loss) -> None:
    root = loss(torch.ones(4, requires_grad=True))
    assert not root.isfinite()
    assert undefined_operation(root) is None


def _train(masks: list[float]) -> Outcome:
    seed()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for size in masks:
        mask = torch.full((4, 1), size)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.randn(4, 4))
        loss = (out.float().square() * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()
        losses.append(loss.detach())
    return Outcome.of(losses=losses, model=list(model.parameters()))


def test_each_onset_is_told_on_steps_that_nobody_examines_too(recording: Recording) -> None:
    masks = [1.0] * 6 + [0.0] * 3 + [1.0] * 3 + [0.0, 1.0]
    alone = _train(masks)
    with recording.start():
        recorded = _train(masks)
    assert recorded.differences(alone) == []
    told = [number for number, call in enumerate(recording.calls("backward")) if call.undefined]
    assert told == [6, 12]
    assert {c.undefined for c in recording.calls("backward")} == {None, "div"}
