"""Wrapped classes behave as without us."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo
import torch.fx
from torch import nn

from ampdoctor.record.twin.replay.class_calls import ClassCalls
from tests.record.twin.replayed_networks import CLASSES, WIDTH
from tests.record.twin.replaying import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def calls() -> Iterator[ClassCalls]:
    calls = ClassCalls(lambda module: True, lambda *_: None, lambda *_: None)
    calls.follow(nn.Sequential)
    calls.follow(nn.Linear)
    yield calls
    calls.remove()
    assert "__call__" not in vars(nn.Sequential)
    assert "__call__" not in vars(nn.Linear)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.ReLU(), nn.Linear(5, CLASSES))


class Own(nn.Linear):
    """Has a call of its own."""

    def __call__(self, x: torch.Tensor, *, twice: bool = False) -> Any:
        """Say so."""
        out = super().__call__(x)
        return (out, out) if twice else out


@pytest.mark.usefixtures("calls")
def test_signatures_names_and_docs() -> None:
    bare = nn.ReLU()
    assert inspect.signature(net().__call__) == inspect.signature(bare.__call__)
    assert inspect.signature(nn.Sequential.__call__) == inspect.signature(nn.ReLU.__call__)
    assert inspect.signature(net()) == inspect.signature(bare)
    assert nn.Sequential.__call__.__qualname__ == nn.ReLU.__call__.__qualname__
    assert inspect.ismethod(net().__call__)


def test_a_class_with_a_call_of_its_own(calls: ClassCalls) -> None:
    own, before = Own(WIDTH, 2), Own.__call__
    signature = inspect.signature(own)
    assert calls.follow(Own)
    assert inspect.signature(own) == signature
    assert (Own.__call__.__doc__, Own.__call__.__name__) == ("Say so.", "__call__")
    x = torch.randn(2, WIDTH)
    assert len(own(x, twice=True)) == 2
    calls.remove()
    assert Own.__call__ is before


def test_what_is_no_method_is_left_alone(calls: ClassCalls) -> None:
    class Odd(nn.Linear):
        __call__: Any = type("Called", (), {"__call__": lambda self, x: x})()

    assert not calls.follow(Odd)
    assert Odd(1, 1)(3) == 3


def test_a_metaclass_of_the_users_is_not_asked(calls: ClassCalls) -> None:
    class Frozen(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError("frozen")

    class Still(nn.Linear, metaclass=Frozen):
        pass

    assert calls.follow(Still)
    calls.remove()
    assert "__call__" not in vars(Still)


@pytest.mark.usefixtures("calls")
def test_copies_and_pickles() -> None:
    model = net()
    for again in (
        copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model)), _saved(model)
    ):  # fmt: skip
        x = torch.randn(2, WIDTH)
        assert torch.equal(again(x), model(x))
        assert "__call__" not in vars(again)


def _saved(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


@pytest.mark.usefixtures("calls")
def test_a_class_pickled_by_value_takes_along_nothing_of_ours() -> None:
    # As cloudpickle does with the classes of a script: what a function's closure holds has to be pickled.
    cells = inspect.getclosurevars(nn.Sequential.__call__).nonlocals
    following = pickle.loads(pickle.dumps(cells["following"]))
    assert following.on is False
    assert b"ampdoctor" not in pickle.dumps(cells["following"])
    assert {name for name in cells if name != "following"} == {"kind", "own"}


@pytest.mark.usefixtures("calls")
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript() -> None:
    model, x = net(), torch.randn(2, WIDTH)
    assert torch.equal(torch.jit.script(model)(x), model(x))
    traced = torch.jit.trace(model, x)
    assert torch.equal(traced(x), model(x))
    assert "Sequential" in str(traced)


@pytest.mark.parametrize("followed", [False, True])
def test_fx(followed: bool) -> None:
    calls = ClassCalls(lambda module: True, lambda *_: object(), lambda *_: None)
    if followed:
        calls.follow(nn.Linear)
        calls.follow(nn.Sequential)
    try:
        graph = torch.fx.symbolic_trace(nn.Sequential(net(), nn.Linear(CLASSES, 1))).graph
        assert [n.target for n in graph.nodes if n.op == "call_module"] == ["0.0", "0.1", "0.2", "1"]
    finally:
        calls.remove()


@pytest.mark.filterwarnings("ignore")
def test_compiled_before_during_and_after() -> None:
    torch._dynamo.reset()
    calls = ClassCalls(lambda module: True, lambda *_: object(), lambda *_: None)
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model, x = net(), torch.randn(2, WIDTH)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    calls.follow(nn.Linear)
    calls.follow(nn.Sequential)
    try:
        for _ in range(2):
            compiled(x)
        calls.on = False
        compiled(x)
        calls.on = True
        assert len(graphs) == 1
    finally:
        calls.remove()
    compiled(x)
    assert len(graphs) <= 2
    torch._dynamo.reset()


def test_an_error_of_the_users_comes_through_with_one_frame_more(calls: ClassCalls) -> None:
    def frames(module: nn.Module) -> list[str]:
        with pytest.raises(RuntimeError) as caught:
            module(torch.randn(2, WIDTH + 1))
        return [f.filename for f in traceback.extract_tb(caught.tb)][1:]

    with_us = frames(nn.Linear(WIDTH, 2))
    calls.remove()
    without = frames(nn.Linear(WIDTH, 2))
    assert [f for f in with_us if not f.endswith("class_calls.py")] == without
    assert len(with_us) == len(without) + 1


def test_an_error_of_ours_does_not_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper()
    model = nn.Linear(WIDTH, CLASSES)
    keeper.meet(model)
    keeper.guard.strict = False

    def fail(*_: Any) -> Any:
        raise ArithmeticError("ours")

    monkeypatch.setattr(keeper.kept, "_take", fail)
    model(torch.randn(2, WIDTH)).sum().backward()
    monkeypatch.setattr(keeper.kept, "_listens", fail)
    model(torch.randn(2, WIDTH)).sum().backward()
    keeper.kept.remove()


def test_wrapped_again_by_somebody_else(calls: ClassCalls) -> None:
    ours, seen = nn.Linear.__call__, []

    def theirs(self: Any, *args: Any) -> Any:
        seen.append(self)
        return ours(self, *args)

    nn.Linear.__call__ = theirs  # type: ignore[method-assign]
    calls.remove()
    model = nn.Linear(WIDTH, 1)
    model(torch.randn(1, WIDTH))
    assert seen == [model]
    del nn.Linear.__call__
