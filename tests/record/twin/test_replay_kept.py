"""What is kept of a step: nothing where it is no use, each gradient once, and outputs to the bit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.record.twin.replay import bits, surroundings
from ampdoctor.record.twin.replay.arrived import Cast
from ampdoctor.record.twin.replay.surroundings import Randomness
from tests.record.twin.replayed_networks import CLASSES, WIDTH
from tests.record.twin.replaying import Keeper, Watch, equal, gradients_of, harvested, linear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ampdoctor.record.twin.replay.again import Gradients


@pytest.fixture
def _one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts its own there
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def train(keeper: Keeper, net: nn.Module, steps: int = 3) -> None:
    """Run steps, all of them examined, and leave the last as it is."""
    with keeper.examined():
        for _ in range(steps):
            keeper.kept.forget()
            keeper.backward(net(torch.randn(2, WIDTH)).sum())


def holds_nothing(keeper: Keeper) -> bool:
    kept = keeper.kept
    return not kept.calls and not kept._budget.taken and not kept._roots


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.filterwarnings("ignore")
def test_nothing_under_distributed_data_parallel(keeper: Keeper) -> None:
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, CLASSES)))
    train(keeper, net)
    assert holds_nothing(keeper)
    reason = "DistributedDataParallel may not be called an additional time"
    assert keeper.replay(Watch()).declined == reason
    del net
    keeper.kept.forget()
    assert str(keeper.replay(Watch()).declined).startswith("no module was called")


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.filterwarnings("ignore")
def test_nor_where_it_is_wrapped_later(keeper: Keeper) -> None:
    net = nn.Linear(WIDTH, CLASSES)
    train(keeper, net)
    assert len(keeper.kept.calls) == 1
    keeper.kept.forget()
    train(keeper, nn.parallel.DistributedDataParallel(net))
    assert holds_nothing(keeper)


def test_nothing_where_several_ranks_train(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Linear(WIDTH, CLASSES)
    train(keeper, net)
    assert len(keeper.kept.calls) == 1
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    train(keeper, net)
    assert holds_nothing(keeper)
    assert str(keeper.replay(Watch()).declined).startswith("several ranks train together")


def test_a_refused_root_beside_one_that_is_kept(keeper: Keeper) -> None:
    refused, net = nn.DataParallel(nn.Linear(WIDTH, CLASSES)), nn.Linear(WIDTH, CLASSES)
    with keeper.examined():
        loss = refused(torch.randn(2, WIDTH)).sum() + net(torch.randn(2, WIDTH)).sum()
    keeper.backward(loss)
    outcome = keeper.replay(Watch())
    assert (outcome.confirmed, outcome.calls) == (True, 1)
    assert outcome.left_out == ("DataParallel may not be called an additional time (x1)",)


def test_switched_off_it_holds_nothing(keeper: Keeper) -> None:
    net = linear(keeper)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert len(keeper.kept.calls) == 1
    keeper.kept.enabled = False
    assert not keeper.kept.calls
    train(keeper, net)
    train(keeper, nn.Linear(WIDTH, CLASSES))
    assert not keeper.kept.calls
    assert not keeper.kept.passes
    assert keeper.replay(Watch()).declined == "steps are not kept"
    keeper.kept.enabled = True
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).confirmed


def test_the_limit_is_asked_for_once_a_step() -> None:
    asked: list[float] = []

    def limit() -> float:
        asked.append(300.0)
        return asked[-1]

    keeper = Keeper(limit)
    net = linear(keeper)
    for _ in range(2):
        keeper.kept.forget()
        keeper.backward(net(torch.randn(2, WIDTH)).sum())
        keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.kept.why_not is None
    assert len(asked) == 2
    keeper.kept.forget()
    net(torch.randn(20, WIDTH))
    assert str(keeper.kept.why_not).startswith("its inputs and gradients take more than")
    keeper.kept.remove()


def half_call(keeper: Keeper, loss: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Run a half linear layer forward and backward."""
    net = linear(keeper)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(torch.randn(6, WIDTH))
    keeper.backward(loss(out))
    return net


@pytest.mark.parametrize(
    ("loss", "casts"),
    [
        (lambda out: out.float().square().mean(), 1),
        (lambda out: out.view(-1).float().square().mean(), 1),
        (lambda out: F.mse_loss(out.unsqueeze(0).float(), torch.ones(1, 6, CLASSES)), 1),
        (lambda out: out.float().square().mean() + out.float().abs().mean(), 0),
        (lambda out: out.float().square().mean() + out.abs().sum(), 0),
        (lambda out: out.t().float().square().mean(), 0),
        (lambda out: out.square().sum(), 0),
    ],
)
def test_a_gradient_and_its_cast_are_kept_as_one(
    keeper: Keeper, loss: Callable[[torch.Tensor], torch.Tensor], casts: int
) -> None:
    net = half_call(keeper, loss)
    (output,) = keeper.kept.calls[0].outputs
    assert sum(isinstance(g, Cast) for g in output.gradients.values()) == casts
    if casts:
        assert keeper.kept._budget.taken == 4 * 6 * (WIDTH + CLASSES)
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.declined, outcome.wide_seeds) == (None, casts)
    assert equal(harvested(net, found), gradients_of(net))


def test_a_cast_that_a_hook_of_the_users_changes_is_not_made_again(keeper: Keeper) -> None:
    held: list[torch.Tensor] = []

    def loss(out: torch.Tensor) -> torch.Tensor:
        out.register_hook(lambda g: held.append(g.mul_(2)))
        return out.float().square().mean()

    net = half_call(keeper, loss)
    assert keeper.replay(Watch()).declined == "a gradient has been changed in place since"
    del net


def test_one_element_of_many_that_differs_is_seen(keeper: Keeper) -> None:
    class Wrong(nn.Linear):
        at: int | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            if Wrong.at is None:
                return out
            wrong = torch.zeros_like(out).view(-1)
            wrong[Wrong.at] = 1
            return out + wrong.view_as(out)

    net = Wrong(WIDTH, 100)
    keeper.meet(net)
    net(torch.randn(300, WIDTH))
    assert keeper.replay(Watch()).confirmed
    for Wrong.at in (7, 4998, 29_999):
        assert keeper.replay(Watch()).confirmed is False


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2])
@pytest.mark.parametrize("offset", range(9))
def test_the_checksum_is_of_all_bits(dtype: torch.dtype, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_SAMPLED", 0)
    every = torch.randn(150).to(dtype)
    values = every[offset : offset + 105].view(3, 5, 7).transpose(0, 2)
    total = bits.checksum(values)
    assert total is not None
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    for changed in range(offset, offset + 105):
        every.view(whole)[changed] ^= 1
        again = bits.checksum(values)
        assert again is not None
        assert not torch.equal(total, again)
        every.view(whole)[changed] ^= 1
    again = bits.checksum(values)
    assert again is not None
    assert torch.equal(total, again)


@pytest.mark.parametrize(
    "scattered",
    [
        torch.zeros(100, 100)[:, :99],
        torch.zeros(1, 4000).expand(3, 4000),
        torch.zeros(10_000)[::2],
        torch.zeros(4096),
        torch.zeros(0),
    ],
)
def test_no_checksum_where_it_is_no_use_or_would_need_a_copy(scattered: torch.Tensor) -> None:
    assert bits.checksum(scattered) is None


def test_too_many_elements_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_MOST_SUMMED", 5000)
    assert bits.checksum(torch.zeros(5001)) is None
    assert bits.checksum(torch.zeros(5000)) is not None


def test_only_generators_of_devices_in_use_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    every = tuple(torch.Generator() for _ in range(4))
    monkeypatch.setattr(surroundings, "cuda_in_use", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", every)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def taken(*devices: str) -> list[Any]:
        state = Randomness.now(frozenset(), frozenset(map(torch.device, devices)))
        return [g for g, _ in state.generators[1:]]

    assert taken("cpu", "cuda:2") == [every[0], every[2]]
    assert taken("cpu") == [every[0]]
    assert [g for g, _ in Randomness.now().generators[1:]] == list(every)
