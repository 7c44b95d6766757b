"""Replay of steps of several root modules, several backward passes, several outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin.replayed_networks import CLASSES, WIDTH, mlp
from tests.record.twin.replaying import Keeper, Watch, equal, gradients_of, harvested

if TYPE_CHECKING:
    from ampdoctor.record.twin.replay.again import Gradients


def test_several_micro_batches_add_up(keeper: Keeper) -> None:
    net = mlp()
    keeper.meet(net)
    for _ in range(3):
        keeper.backward(net(torch.randn(6, WIDTH)).square().mean())
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.calls, outcome.passes) == (3, 3)
    assert equal(harvested(net, found), gradients_of(net))


def test_two_passes_through_one_graph_add_up(keeper: Keeper) -> None:
    net = mlp()
    keeper.meet(net)
    out = net(torch.randn(6, WIDTH))
    keeper.backward(out.square().mean(), retain_graph=True)
    keeper.backward(out.abs().mean())
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.calls, outcome.passes) == (1, 2)
    assert equal(harvested(net, found), gradients_of(net))


def test_one_root_hands_on_to_another(keeper: Keeper) -> None:
    encoder, decoder = nn.Linear(WIDTH, 5), nn.Linear(5, CLASSES)
    keeper.meet(encoder, decoder)
    code = encoder(torch.randn(6, WIDTH))
    keeper.backward(F.cross_entropy(decoder(code), torch.randint(CLASSES, (6,))))
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.calls, outcome.passes, outcome.seeds) == (2, 1, 1)
    for net in (encoder, decoder):
        assert equal(harvested(net, found), gradients_of(net))


def test_an_output_with_a_consumer_beside_the_next_root(keeper: Keeper) -> None:
    encoder, decoder = nn.Linear(WIDTH, 5), nn.Linear(5, CLASSES)
    keeper.meet(encoder, decoder)
    code = encoder(torch.randn(6, WIDTH))
    keeper.backward(decoder(code).square().mean() + code.abs().mean())
    found: Gradients = []
    assert keeper.replay(Watch(), harvest=found.extend).confirmed
    assert equal(harvested(encoder, found), gradients_of(encoder))


def test_roots_with_an_operation_between_them(keeper: Keeper) -> None:
    encoder, decoder = nn.Linear(WIDTH, 5), nn.Linear(5, CLASSES)
    keeper.meet(encoder, decoder)
    keeper.backward(decoder(encoder(torch.randn(6, WIDTH)).tanh()).square().mean())
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.seeds, outcome.confirmed) == (2, True)
    for net in (encoder, decoder):
        assert equal(harvested(net, found), gradients_of(net))


def test_the_loss_inside_the_model(keeper: Keeper) -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def forward(self, x: torch.Tensor, *, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.net(x)
            return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    net = WithLoss()
    with keeper.examined():  # the very first call is kept as well
        out = net(torch.randn(6, WIDTH), labels=torch.randint(CLASSES, (6,)))
    keeper.backward(out["loss"])
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert (outcome.declined, outcome.seeds) == (None, 1)
    assert equal(harvested(net, found), gradients_of(net))
