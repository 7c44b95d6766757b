"""What a backward pass starts from: scaled or not, and by which numbers the code multiplied it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampdoctor.record.autograd_graph import hand_factors, mark_scaled, scaled_share

if TYPE_CHECKING:
    from tests.record.recording import Recording


class _Scaler:
    """GradScaler.scale with the note that the recorder leaves."""

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        scaled = loss * torch.tensor(8.0)
        mark_scaled(scaled)
        return scaled


@pytest.fixture
def s() -> _Scaler:
    return _Scaler()


def _loss(value: float = 3.0) -> torch.Tensor:
    return torch.tensor(value, requires_grad=True).exp()


ALL: dict[str, Any] = {
    "plain": lambda s, a, b: s.scale(a),
    "divided after": lambda s, a, b: s.scale(a) / 4,
    "divided before": lambda s, a, b: s.scale(a / 4),
    "weighted": lambda s, a, b: 0.5 * s.scale(a) + s.scale(b) * 2,
    "scaled sum": lambda s, a, b: s.scale(a + b),
    "difference": lambda s, a, b: s.scale(a) - s.scale(b),
    "negative": lambda s, a, b: -s.scale(a),
    "stacked": lambda s, a, b: torch.stack([s.scale(a), s.scale(b)]).mean(),
    "concatenated": lambda s, a, b: torch.cat([s.scale(a).view(1), s.scale(b).reshape(1)]).sum(),
    "summed by python": lambda s, a, b: sum([s.scale(a), s.scale(b)]),
    "plus a number": lambda s, a, b: s.scale(a) + 1.0,
    "cast": lambda s, a, b: s.scale(a).double(),
    "times a weight that learns": lambda s, a, b: s.scale(a) * b,
    "forty terms": lambda s, a, b: sum(s.scale(a) for _ in range(40)),
    "doubled forty times": lambda s, a, b: _doubled(s.scale(a)),
}
SOME: dict[str, Any] = {
    "one of two": lambda s, a, b: s.scale(a) + b,
    "one of two, divided": lambda s, a, b: (s.scale(a) + b) / 2,
    "one of forty": lambda s, a, b: sum([s.scale(a) for _ in range(39)]) + b,
    "stacked": lambda s, a, b: torch.stack([s.scale(a), b]).sum(),
}
NONE: dict[str, Any] = {
    "plain": lambda s, a, b: a,
    "by hand": lambda s, a, b: a * 1024,
    "sum": lambda s, a, b: a + b,
    "scaled and then used": lambda s, a, b: s.scale(a).detach() + b,
    "a leaf": lambda s, a, b: torch.tensor(1.0, requires_grad=True),
}


def _doubled(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = x + x
    return x


@pytest.mark.parametrize(
    ("build", "expected"),
    [(f, share) for share, group in (("all", ALL), ("some", SOME), ("none", NONE)) for f in group.values()],
    ids=[f"{share}: {name}" for share, group in (("all", ALL), ("some", SOME), ("none", NONE)) for name in group],
)
def test_how_much_of_a_loss_is_scaled(s: _Scaler, build: Any, expected: str) -> None:
    assert scaled_share(build(s, _loss(), _loss()).grad_fn) == expected


def test_a_loss_of_too_many_terms_is_not_judged(s: _Scaler) -> None:
    assert scaled_share(sum(s.scale(_loss()) for _ in range(5000)).grad_fn) is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "factor"),
    [
        (lambda s, a: a, 1.0),
        (lambda s, a: a / 4, 0.25),
        (lambda s, a: a * 1024, 1024.0),
        (lambda s, a: 0.5 * a / 8, 0.0625),
        (lambda s, a: s.scale(a / 4), 0.25),
        (lambda s, a: s.scale(a) / 4, 0.25),
        (lambda s, a: s.scale(a * 2) / 8, 0.25),
        (lambda s, a: -(a / 2), 0.5),
        (lambda s, a: (a * 2).double() / 8, 0.25),
        (lambda s, a: a * torch.tensor(0.25), 0.25),
        (lambda s, a: a * torch.tensor([0.25]), 0.25),
        (lambda s, a: (a * torch.tensor([0.25, 4.0])).sum(), 1.0),
        (lambda s, a: a * _loss() / 2, 0.5),
        (lambda s, a: (a / 4 + 1) * 8, 8.0),
        (lambda s, a: a * 0, 0.0),
    ],
)
def test_the_product_of_the_numbers_in_code(s: _Scaler, build: Any, factor: float) -> None:
    assert math.prod(hand_factors(build(s, _loss()).grad_fn) or []) == factor


def test_a_checkpointed_block_is_not_recomputed_for_our_sake() -> None:
    calls = []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin().sum() * torch.tensor(0.25)

    x = torch.ones(3, requires_grad=True)
    loss = checkpoint(block, x, use_reentrant=False)
    assert math.prod(hand_factors(loss.grad_fn) or []) in {0.25, 1.0}
    assert len(calls) == 1
    loss.backward()
    assert len(calls) == 2


def test_a_graph_that_was_freed_is_none_of_our_business() -> None:
    loss = _loss() * torch.tensor(3.0)
    loss.backward()
    assert math.prod(hand_factors(loss.grad_fn) or []) == 1.0


def _calls(recording: Recording, build: Any, **settings: Any) -> Any:
    model = nn.Linear(1, 1)
    scaler = torch.amp.GradScaler("cpu", **{"init_scale": 16.0, **settings})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.weight.fill_(3.0)
        model.bias.fill_(0.0)
    with recording.start(every=1):
        build(scaler, model(torch.ones(1, 1)).sum(), model(torch.ones(1, 1)).mean())
        optimizer.step()
    return recording.calls("backward")


@pytest.mark.parametrize(
    ("build", "scaled", "factor", "loss"),
    [
        (lambda s, a, b: s.scale(a).backward(), "all", 1.0, 3.0),
        (lambda s, a, b: (s.scale(a) / 4).backward(), "all", 0.25, 0.75),
        (lambda s, a, b: (s.scale(a) + b).backward(), "some", 1.0, 51.0),
        (lambda s, a, b: (a * 1024).backward(), "none", 1024.0, 3072.0),
        (lambda s, a, b: torch.autograd.backward(s.scale([a, b])), "all", None, 6.0),
        (lambda s, a, b: torch.autograd.backward([s.scale(a), b]), "some", None, 6.0),
    ],
)
def test_it_is_in_the_calls_and_the_loss_is_as_the_user_knows_it(
    recording: Recording, build: Any, scaled: str, factor: float | None, loss: float
) -> None:
    (row,) = _calls(recording, build)
    assert (row.scaled, row.factor) == (scaled, factor)
    (step,) = recording.run.steps
    # The scale is divided out where all was scaled; of a sum, a mixed one is nothing that could be put right.
    assert step.loss == loss


def test_the_losses_of_a_step_add_up(recording: Recording) -> None:
    def accumulate(scaler: Any, a: torch.Tensor, b: torch.Tensor) -> None:
        scaler.scale(a / 2).backward()
        scaler.scale(b / 2).backward()

    rows = _calls(recording, accumulate)
    assert [(r.scaled, r.factor, r.micro_batch) for r in rows] == [("all", 0.5, 0), ("all", 0.5, 1)]
    assert recording.run.steps[0].loss == 3.0
    assert recording.run.steps[0].micro_batches == 2


@pytest.mark.parametrize(
    ("build", "loss"),
    [
        (lambda s, a, b: s.scale(a).backward(), 3.0),
        (lambda s, a, b: [part.backward() for part in s.scale([a, b])], 6.0),
        (lambda s, a, b: (s.scale(a) + s.scale(b)).backward(), None),  # nobody knows what it was before
        (lambda s, a, b: s.scale(a * math.inf).backward(), math.inf),
    ],
    ids=["scaled", "one after the other", "a sum", "infinite itself"],
)
def test_a_scale_that_passes_fp32_breaks_no_loss(recording: Recording, build: Any, loss: float | None) -> None:
    _calls(recording, build, init_scale=2.0**127)
    assert [s.loss for s in recording.run.steps] == [loss]


def test_a_loss_that_is_infinite_at_a_scale_of_ordinary_size_is_broken(recording: Recording) -> None:
    _calls(recording, lambda s, a, b: (s.scale(a * math.inf) + s.scale(b)).backward())
    assert [s.loss for s in recording.run.steps] == [math.inf]
