"""Forwards that have an effect are told from those that only calculate."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ampdoctor.record.twin.replay.purity import effect
from tests.record.twin import effects, more_effects, networks, replayed_networks
from tests.record.twin.effects import SEEN, Base, having, object_property, prints
from tests.record.twin.forwards import Gpt
from tests.record.twin.more_forwards import PURE

IMPURE: list[tuple[Any, str]] = [
    (effects.prints, "`print` is called (effects.py:"),
    (effects.global_statement, "a global is assigned (effects.py:"),
    (effects.global_list, "the global `SEEN` (a list) is read (effects.py:"),
    (effects.global_tensor, "the global `BANK` (a Tensor) is read"),
    (effects.global_iterator, "the global `ITERATOR` (a range_iterator) is read"),
    (effects.own_iterator, "`next` is called"),
    (effects.logs, "the global `LOGGER` (a Logger) is read"),
    (effects.own_logger, "(__init__.py:"),
    (effects.locks, "the global `LOCK` (a "),
    (effects.generator, "the global `GENERATOR` (a Generator) is read"),
    (effects.numpys, "the global `NUMPYS` (a Generator) is read"),
    (effects.global_net, "the global `NET` (a Linear) is read"),
    (effects.cache_method, "`cache.update` is called on what was handed in (effects.py:"),
    (effects.cache_append, "`seen.append` is called on what was handed in"),
    (effects.cache_set, "`seen.add` is called on what was handed in"),
    (effects.cache_item, "`cache['x']` of what was handed in is assigned"),
    (effects.cache_number, "`cache[0]` of what was handed in is assigned"),
    (effects.cache_attribute, "the attribute `state.n` is assigned"),
    (effects.cache_extended, "`seen`, which was handed in, is extended"),
    (effects.default_list, "`seen.append` is called on what was handed in"),
    (effects.object_attribute, "the attribute `self.obj.n` is assigned"),
    (effects.object_method, "the attribute `self.n` is assigned"),
    (effects.object_property, "the global `SEEN` (a list) is read"),
    (effects.own_property, "`print` is called"),
    (effects.class_attribute, "the attribute `Base.number` is assigned"),
    (effects.class_list, "`kept` (a list) is read"),
    (effects.numpy_array, "an operator is applied to a ndarray"),
    (effects.autograd_function, "the global `SEEN` (a list) is read"),
    (effects.warns, "`warnings.warn` is called"),
    (effects.writes, "`open` is called"),
    (effects.sets, "`setattr` is called"),
    (effects.executes, "`exec` is called"),
    (effects.imports, "`import` is a statement that is not followed"),
    (effects.yields, "`(yield x)` is not followed"),
    (effects.seeds, "`torch.manual_seed` is called"),
    (effects.saves, "`torch.save` is called"),
    (effects.goes_back, "`self.layer(x).sum().backward` is called on a value"),
    (effects.registers, "`self.layer.register_forward_hook` is called"),
    (effects.hooks_tensor, "`y.register_hook` is called on a value"),
    (effects.replaces_layer, "the attribute `self.layer` (a NoneType) is assigned"),
    (effects.calls_given, "what `layer` calls can't be known"),
    (effects.inner_prints, "`print` is called"),
    (effects.late_binding, "`chosen` is called"),
    (more_effects.broken_out, "`y.append` is called on what was handed in"),
    (more_effects.stored_before, "`self.act.append` is called on what was handed in"),
    (more_effects.mapped, "`print` is called"),
    (more_effects.other_attribute, "the global `SEEN` (a list) is read"),
]


@pytest.mark.parametrize("name", PURE)
def test_forwards_that_only_calculate(name: str) -> None:
    assert effect(PURE[name]()) is None


@pytest.mark.parametrize(("forward", "reason"), IMPURE, ids=lambda x: getattr(x, "__name__", ""))
def test_effects_are_told(forward: Any, reason: str) -> None:
    assert reason in (effect(having(forward)) or "nothing")


@pytest.mark.parametrize("name", replayed_networks.NETWORKS)
def test_networks_of_the_replays(name: str) -> None:
    assert effect(replayed_networks.NETWORKS[name]()) is None


def test_networks_of_the_twins() -> None:
    every = [
        networks.mlp(), networks.cnn(), networks.Transformer(), networks.Recurrent(nn.GRU), networks.Vit(),
        networks.Tied(), networks.Checkpointed(reentrant=True), networks.Island(), networks.TwoHeads(),
    ]  # fmt: skip
    assert [effect(module) for module in every] == [None] * len(every)


def test_a_module_deep_below_counts() -> None:
    net = Gpt()
    net.blocks[2].mlp.drop = having(prints)  # type: ignore[union-attr]
    assert "`print` is called" in (effect(net) or "nothing")


def test_a_module_in_a_plain_list_counts() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [having(prints)]

        def forward(self, x):
            return self.hidden[0](x)

    assert "`print` is called" in (effect(Listed()) or "nothing")


def test_methods_that_a_forward_of_torchs_calls() -> None:
    class Checking(nn.BatchNorm1d):
        def _check_input_dim(self, x: torch.Tensor) -> None:
            SEEN.append(1)

    assert "the global `SEEN`" in (effect(Checking(8)) or "nothing")


def test_functions_that_modules_of_torchs_hold() -> None:
    def activation(x: torch.Tensor) -> torch.Tensor:
        SEEN.append(1)
        return x

    layer = nn.TransformerEncoderLayer(8, 2, activation=activation)
    assert "the global `SEEN`" in (effect(layer) or "nothing")


def test_forwards_of_single_objects() -> None:
    layer = nn.Linear(8, 8)
    layer.forward = prints.__get__(layer)  # type: ignore[method-assign]
    assert "`print` is called" in (effect(layer) or "nothing")


def test_code_without_source() -> None:
    held: dict[str, Any] = {}
    exec("def forward(self, x): return x", held)
    assert "the source of `forward (<string>:1)` can't be read" in (effect(having(held["forward"])) or "nothing")


def test_nothing_of_the_users_runs_and_nothing_is_raised() -> None:
    class Hostile(Base):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

        def forward(self, x):
            return self.nothing(x)

    SEEN.clear()
    assert effect(having(object_property)) is not None
    assert effect(object()) is not None  # type: ignore[arg-type]
    net = Base()
    object.__setattr__(net, "__class__", Hostile)
    assert effect(net) is not None
    assert SEEN == []
