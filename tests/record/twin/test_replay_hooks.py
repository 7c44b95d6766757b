"""Hooks of the user's would run once more in a replay: such a step is declined, unless that is wanted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_hooks

from tests.record.twin.replayed_networks import CLASSES, WIDTH
from tests.record.twin.replaying import Keeper, Watch, linear

RAN: list[int] = []
"""Out of a replay's reach."""


class Ran:
    """A hook that counts."""

    def __init__(self) -> None:
        RAN.clear()

    @property
    def times(self) -> int:
        return len(RAN)

    def __call__(self, *args: Any) -> None:
        RAN.append(1)


def check(keeper: Keeper, ran: Ran, what: str) -> None:
    before = ran.times
    assert before
    assert keeper.replay(Watch()).declined == (f"hooks of the training's own on {what} would run a second time")
    assert ran.times == before
    assert keeper.replay(Watch(), hooks_too=True).confirmed
    assert ran.times > before


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_on_a_module(keeper: Keeper, kind: str) -> None:
    net, ran = nn.Sequential(nn.Linear(WIDTH, CLASSES)), Ran()
    keeper.meet(net)
    getattr(net[0], kind)(ran)
    x = torch.randn(2, WIDTH, requires_grad=True)
    keeper.backward(net(x).sum())
    check(keeper, ran, "Linear")


def test_on_all_modules(keeper: Keeper) -> None:
    net, ran = linear(keeper), Ran()
    handle = torch_hooks.register_module_forward_hook(ran)
    try:
        keeper.backward(net(torch.randn(2, WIDTH)).sum())
        check(keeper, ran, "all modules")
    finally:
        handle.remove()


def test_on_a_weight(keeper: Keeper) -> None:
    net, ran = nn.Linear(WIDTH, CLASSES), Ran()
    keeper.meet(net)
    net.weight.register_hook(ran)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    check(keeper, ran, "weights")


def test_on_an_input(keeper: Keeper) -> None:
    net, ran = linear(keeper), Ran()
    x = torch.randn(2, WIDTH, requires_grad=True)
    x.register_hook(ran)
    keeper.backward(net(x).sum())
    check(keeper, ran, "inputs")


def test_set_by_the_forward_itself(keeper: Keeper) -> None:
    ran = Ran()

    class Hooking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            out.register_hook(ran)
            return out

    net = Hooking(WIDTH, CLASSES)
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    check(keeper, ran, "tensors")
    assert torch.Tensor.register_hook.__module__ == "torch._tensor"


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
def test_those_of_torch_are_no_hindrance(keeper: Keeper) -> None:
    net = nn.utils.spectral_norm(nn.Linear(WIDTH, CLASSES))
    with keeper.examined():
        net(torch.randn(2, WIDTH))
    keeper.kept.forget()
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).confirmed
