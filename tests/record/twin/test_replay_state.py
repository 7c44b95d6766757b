"""What modules keep in plain Python is as it was after a replay; where that can't be had, nothing is executed."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import logging
import random
import re
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from ampdoctor.record.twin.replay import reachable, untouched, versions
from ampdoctor.record.twin.replay.reachable import Reachable
from ampdoctor.record.twin.replay.untouched import Untouched
from tests.record.twin.replayed_networks import CLASSES, WIDTH
from tests.record.twin.replaying import Keeper, Watch, linear

if TYPE_CHECKING:
    from collections.abc import Callable


class Meter:
    """An object of the user's."""

    total: ClassVar[int] = 0
    seen: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.calls = 0
        self.inner: dict[str, Any] = {"norms": [], "by": {"layer": collections.Counter[str]()}}
        self.itself = self


class Slotted:
    __slots__ = ("calls", "late")

    def __init__(self) -> None:
        self.calls = 0


class History(list[float]):
    """A list with an attribute; its own methods would do something else."""

    last = 0.0

    def __iter__(self) -> Any:
        raise AssertionError("the user's own method")


class Keeping(nn.Linear):
    """Writes to everything that it reaches."""

    of_class: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__(WIDTH, CLASSES)
        self.meter, self.slotted, self.history = Meter(), Slotted(), History()
        self.ordered = collections.OrderedDict(a=[1])
        self.window = collections.deque([1, 2], maxlen=2)
        self.names = {"a"}
        self.array, self.raw = np.zeros(2), bytearray(b"ab")
        self.lot = random.Random(1)
        self.hidden = [torch.zeros(2)]
        self.count = counting()
        self.log: Callable[..., None] = functools.partial(note, self.meter.inner["norms"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.meter.calls += 1
        self.meter.new = 1  # type: ignore[attr-defined]
        self.meter.inner["by"]["layer"]["x"] += 1
        self.slotted.calls += 1
        self.slotted.late = 1  # type: ignore[attr-defined]
        self.history.append(1.0)
        self.history.last = float(x.norm())
        self.ordered["a"].append(2)
        self.ordered["b"] = [3]
        self.ordered.move_to_end("a")
        self.window.append(3)
        self.names.add("b")
        self.array += 1
        self.raw[0] += 1
        self.lot.random()
        self.hidden[0].add_(1)
        self.count()
        self.log(1.0)
        Meter.total += 1
        Meter.seen.append(1)
        Keeping.of_class += 1
        return super().forward(x)


def counting() -> Callable[[], int]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return count


def reading(items: Any) -> Callable[[], Any]:
    return lambda: next(items)


def note(where: list[float], value: float) -> None:
    where.append(value)


def told(net: Keeping) -> list[Any]:
    """Return all that its forward writes to, as values."""
    return [
        sorted(k for k in vars(net.meter)), net.meter.calls, repr(net.meter.inner), net.slotted.calls,
        hasattr(net.slotted, "late"), list.__len__(net.history), net.history.last, list(net.ordered.items()),
        list(net.window), net.names, net.array.tolist(), bytes(net.raw), net.lot.getstate(), net.hidden[0].tolist(),
        net.count.__closure__[0].cell_contents,  # type: ignore[index]
        Meter.total, list(Meter.seen), Keeping.of_class,
    ]  # fmt: skip


def test_all_that_modules_reach_is_as_it_was(keeper: Keeper) -> None:
    net = Keeping()
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    before = [repr(value) for value in told(net)]
    outcome = keeper.replay(Watch())
    assert (outcome.declined, outcome.confirmed) == (None, True)
    assert [repr(value) for value in told(net)] == before
    net(torch.randn(2, WIDTH))
    after = [repr(value) for value in told(net)]
    # The first call has set new attributes and added a name already.
    assert [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a == b] == [0, 4, 9]


class Member(enum.Enum):
    ONE = 1


class Holding(nn.Linear):
    """Holds one thing that is none of torch's."""

    def __init__(self, thing: Any) -> None:
        super().__init__(WIDTH, CLASSES)
        self.thing = thing


class NotPlain(threading.local):
    pass


def _reader(path: Path) -> Any:
    return (path / "log").open("w")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda _: iter([1]), "an iterator"),
        (lambda _: (n for n in [1]), "an iterator"),
        (lambda _: itertools.count(), "an iterator"),
        (lambda _: threading.Lock(), "a lock or a thread"),
        (lambda _: {"deep": [Meter(), {"deeper": threading.Event()}]}, "a lock or a thread"),
        (lambda _: NotPlain(), "a lock or a thread"),
        (_reader, "an open file"),
        (lambda _: sys.modules["_socket"].socket(), "a socket"),
        (lambda _: torch.jit.script(nn.Linear(1, 1)), "a scripted module"),
        (lambda _: memoryview(b"a"), "an object of builtins.memoryview"),
        (lambda _: functools.partial(next, iter([1])), "an iterator"),
        (lambda _: reading(iter([1])), "an iterator"),
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script`")
def test_what_nobody_can_put_back_is_declined(
    keeper: Keeper, tmp_path: Path, make: Callable[[Path], Any], what: str
) -> None:
    net = Holding(None)
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    thing = make(tmp_path)
    object.__setattr__(net, "thing", thing)
    outcome = keeper.replay(Watch())
    assert outcome.declined == f"Holding.thing holds {what}, which can't be put back as it was"
    assert outcome.calls == 0
    if hasattr(thing, "close"):
        thing.close()


@pytest.mark.parametrize(
    "thing",
    [
        sys.stdout, object(), torch.float16, torch.device("cpu"), np.float32(1), np.dtype("f4"), range(3), len,
        [].append, logging.getLogger("x"), nn.functional.relu, nn.Linear, torch.Size([1]), Ellipsis,
        weakref.ref(nn.Linear), Path(), re.compile("a"), torch.ops.aten.mm, Member.ONE,
        torch.autograd.Function, functools.lru_cache(len), torch.amp.GradScaler("cpu"), weakref.WeakKeyDictionary(),
        torch.autocast("cpu"),
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_what_many_a_module_holds_is_no_hindrance(keeper: Keeper, thing: Any) -> None:
    net = Holding(thing)
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).declined is None
    assert net.thing is thing


def test_more_than_can_be_looked_at(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "_MOST_OBJECTS", 100)
    net = Holding([[n] for n in range(200)])
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert "too many objects" in str(keeper.replay(Watch()).declined)


def test_cycles_and_long_lists_end() -> None:
    net = Holding([0] * 100_000)
    loop: list[Any] = []
    loop.append(loop)
    net.loop = loop  # type: ignore[assignment]
    net.back = [net]  # type: ignore[assignment]
    found = Reachable([net])
    assert found.fault is None
    assert set(found.tensors) == {id(p) for p in net.parameters()}


def test_each_is_put_back_whatever_became_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensor: torch.Tensor, version: int) -> None:
        raise RuntimeError("no version")

    monkeypatch.setattr(untouched, "put_version", fail)
    net = Keeping()
    gradient = net.weight.grad = torch.ones_like(net.weight)
    state, weights = torch.get_rng_state(), net.weight.detach().clone()
    before = net.meter.calls

    def change() -> None:
        with torch.no_grad():
            net.weight.add_(1)
            net.bias.add_(1)
        net.weight.grad = None
        net(torch.randn(1, WIDTH))

    with pytest.raises(RuntimeError, match="no version"), Untouched([net]):
        change()
    assert net.weight.grad is gradient
    assert torch.equal(net.weight, weights)
    assert torch.equal(torch.get_rng_state(), state)
    assert net.meter.calls == before


def test_torch_2_4_sets_the_version_of_one_tensor(monkeypatch: pytest.MonkeyPatch, keeper: Keeper) -> None:
    now = torch._C._autograd._unsafe_set_version_counter

    def as_in_2_4(tensor: torch.Tensor, version: int) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("incompatible function arguments")
        now((tensor,), (version,))

    versions._setter.cache_clear()
    monkeypatch.setattr(torch._C._autograd, "_unsafe_set_version_counter", as_in_2_4)
    tensor = torch.zeros(2).add_(1)
    assert versions.can_put_versions()
    versions.put_version(tensor, 0)
    assert tensor._version == 0
    versions._setter.cache_clear()
    monkeypatch.delattr(torch._C._autograd, "_unsafe_set_version_counter")
    net = linear(keeper)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).declined == "this version of torch cannot put version counters back"
    versions._setter.cache_clear()
