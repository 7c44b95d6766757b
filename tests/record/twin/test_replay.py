"""A step that failed, executed again: the same step, and nothing is changed by it."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32, Counterfactual
from tests.record.twin.replayed_networks import CLASSES, NETWORKS, WIDTH, Counting, Stopping, mlp
from tests.record.twin.replaying import Births, Failing, Keeper, Watch, equal, gradients_of, harvested, start

if TYPE_CHECKING:
    from ampdoctor.record.twin.replay.again import Gradients


@pytest.mark.parametrize("name", NETWORKS)
def test_the_training_goes_on_as_if_nothing_had_been(name: str, keeper: Keeper) -> None:
    plain = start(name).train(5, [2, 3]).state()
    births = Births()
    run = start(name, keeper).train(5, [2, 3], births)
    replayed = run.state()
    for outcome in run.outcomes:
        assert outcome.declined is None
        assert (outcome.confirmed, outcome.calls, outcome.passes) == (True, 1, 1)
    assert births.found
    for ours, theirs in zip(replayed, plain, strict=True):
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradients_are_those_of_the_run(name: str, keeper: Keeper) -> None:
    run = start(name, keeper).train(1, [])
    run.forward_backward(8.0)
    found: Gradients = []
    outcome = keeper.replay(Watch(), harvest=found.extend)
    assert outcome.declined is None
    assert equal(harvested(run.net, found), gradients_of(run.net))


def test_inf_is_born_in_the_cast_of_the_gradient(keeper: Keeper) -> None:
    births = Births()
    run = start("mlp", keeper).train(3, [2], births)
    assert births.found[0] == ("aten._to_copy", None, True)
    assert (run.outcomes[0].seeds, run.outcomes[0].wide_seeds) == (1, 1)


def test_inf_is_born_in_a_module_at_a_line_of_the_user(keeper: Keeper) -> None:
    class Exploding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x)
            return (out.half() * 6e4) * 6e4

    net = nn.Sequential(Exploding())
    keeper.meet(net)
    net(torch.randn(4, WIDTH))
    births = Births()
    outcome = keeper.replay(births)
    assert (outcome.confirmed, outcome.passes, outcome.declined) == (True, 0, None)
    assert births.found[0] == ("aten.mul", "Exploding", False)
    assert str(births.lines[0][0]).endswith("test_replay.py")


def test_a_root_of_torchs_own_is_at_the_line_that_called_it(keeper: Keeper) -> None:
    net = nn.Linear(WIDTH, CLASSES)
    keeper.meet(net)
    with torch.no_grad():
        net.weight.fill_(3e38)
    net(torch.full((4, WIDTH), 3e38))
    births = Births()
    keeper.replay(births)
    calling = keeper.kept.calls[0].source
    assert births.lines[0][1] == calling.line
    assert calling.function == "test_a_root_of_torchs_own_is_at_the_line_that_called_it"


def test_twins_are_carried_from_the_seed_to_the_weights(keeper: Keeper) -> None:
    run = start("mlp", keeper).train(1, [])
    run.forward_backward(2.0**40)
    fp32, small = CarriedTwin(FP32), CarriedTwin(Counterfactual("fp16", 8.0))
    finite: list[tuple[bool, bool, bool]] = []

    def seeded(seed: torch.Tensor) -> None:
        small.replace(seed, small.values(seed) * (8.0 / 2.0**40))

    def harvest(gradients: Gradients) -> None:
        for _, gradient in gradients:
            worlds = gradient, fp32.values(gradient), small.values(gradient)
            finite.append(tuple(bool(v.isfinite().all()) for v in worlds))  # type: ignore[arg-type]

    assert keeper.replay(fp32, small, harvest=harvest, seeded=seeded).declined is None
    assert set(finite) == {(False, True, True)}


def test_a_scale_twin_equals_a_real_run_at_that_scale(keeper: Keeper) -> None:
    real = start("mlp").train(1, [])
    real.forward_backward(2.0**10)
    expected = gradients_of(real.net)
    run = start("mlp", keeper).train(1, [])
    run.forward_backward(2.0**-6)
    twin = CarriedTwin(Counterfactual("fp16", 2.0**10))
    found: Gradients = []

    def harvest(gradients: Gradients) -> None:
        found.extend((p, twin.values(g).clone()) for p, g in gradients)

    def seeded(seed: torch.Tensor) -> None:
        twin.replace(seed, twin.values(seed) * 2.0**16)

    keeper.replay(twin, harvest=harvest, seeded=seeded)
    assert equal(harvested(run.net, found), expected)


def test_nothing_of_the_modules_has_changed(keeper: Keeper) -> None:
    run = start("counting", keeper).train(2, [])
    run.forward_backward(8.0)
    net = run.net
    assert isinstance(net, Counting)
    for parameter in list(net.parameters())[:2]:
        parameter.grad = None
    gradients = [p.grad for p in net.parameters()]
    attributes = dict(vars(net))
    kept = [*net.seen], dict(net.by_name), net.mean.clone(), net.own.get_state()
    buffers = [(b, b._version, b.clone()) for b in [*net.buffers(), net.mean]]
    weights = [(p, p._version, p.detach().clone()) for p in net.parameters()]
    modes = [m.training for m in net.modules()]
    assert keeper.replay(Watch()).declined is None
    assert all(vars(net)[k] is v for k, v in attributes.items())
    assert vars(net).keys() == attributes.keys()
    assert ([*net.seen], dict(net.by_name)) == kept[:2]
    assert torch.equal(net.mean, kept[2])
    assert torch.equal(net.own.get_state(), kept[3])
    assert all(t._version == v and torch.equal(t, c) for t, v, c in [*buffers, *weights])
    assert [id(b) for b in net.buffers()] == [id(b) for b, _, _ in buffers[:-1]]
    assert all(p.grad is g for p, g in zip(net.parameters(), gradients, strict=True))
    assert [m.training for m in net.modules()] == modes
    assert not torch.is_autocast_enabled("cpu")


def test_a_living_graph_of_the_users_still_has_its_backward(keeper: Keeper) -> None:
    norm = nn.BatchNorm1d(WIDTH)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), norm)
    keeper.meet(net)
    keeper.backward(net(torch.randn(6, WIDTH)).square().sum())
    w = torch.randn(WIDTH, requires_grad=True)
    running = norm.running_mean
    assert running is not None
    living = (w * running).sum()
    assert keeper.replay(Watch()).confirmed
    living.backward()
    assert w.grad is not None
    assert torch.equal(w.grad, running)


def test_what_fails_in_the_middle_is_put_back_too(keeper: Keeper) -> None:
    norm, stopping = nn.BatchNorm1d(WIDTH), Stopping()
    net = nn.Sequential(norm, stopping)
    keeper.meet(net)
    keeper.backward(net(torch.randn(6, WIDTH)).square().sum())
    stopping.asked["fail"] = True
    before = copy.deepcopy(norm.state_dict())
    state = torch.get_rng_state()
    outcome = keeper.replay(Watch())
    assert outcome.declined == "it failed when it was executed again: ValueError: no more"
    assert all(torch.equal(v, before[k]) for k, v in norm.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not keeper.kept.replaying


def test_a_follower_that_fails_ends_the_second_opinion_alone(keeper: Keeper) -> None:
    run = start("mlp", keeper).train(1, [])
    run.forward_backward(8.0)
    outcome = keeper.replay(Failing())
    assert outcome.declined == "the second opinion failed: ArithmeticError: a follower's"
    assert [str(e) for e in keeper.errors] == ["a follower's"]


def test_so_does_a_harvest_that_fails(keeper: Keeper) -> None:
    def harvest(gradients: Gradients) -> None:
        raise LookupError("a harvest's")

    run = start("mlp", keeper).train(1, [])
    run.forward_backward(8.0)
    outcome = keeper.replay(Watch(), harvest=harvest)
    assert outcome.declined == "the second opinion failed: LookupError: a harvest's"
    assert len(keeper.errors) == 1


def test_copies_and_pickles_of_the_model_know_nothing_of_us(keeper: Keeper) -> None:
    net = mlp()
    keeper.meet(net)
    twin = copy.deepcopy(net)
    assert b"ampdoctor" not in pickle.dumps(net)
    twin(torch.randn(6, WIDTH))
    assert not keeper.kept.calls
