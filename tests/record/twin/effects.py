"""Forwards that do more than to calculate, each with what is said of it."""

# mypy: ignore-errors

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.random
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.record.twin.forwards import activate

if TYPE_CHECKING:
    from collections.abc import Callable

BANK = torch.zeros(8)
SEEN: list[int] = []
ITERATOR = iter(range(100))
LOGGER = logging.getLogger("forwards")
LOCK = threading.Lock()
GENERATOR, NUMPYS = torch.Generator(), np.random.default_rng(0)
NET = nn.Linear(8, 8)
count = 0


class Plain:
    kept: list[int] = []  # noqa: RUF012 - the user's

    def __init__(self) -> None:
        self.n = 0

    def put(self, x):
        self.n += 1
        return x

    @property
    def counted(self):
        SEEN.append(1)
        return 1


class Base(nn.Module):
    number = 0
    kept: list[int] = []  # noqa: RUF012 - the user's

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.obj, self.array = nn.Linear(8, 8), Plain(), np.zeros(3)
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.log = LOGGER
        self.iterator = iter([1])
        self.act: Any = None

    @property
    def shown(self):
        print("!")  # noqa: T201
        return 1


class Stateful(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        SEEN.append(1)
        return gradient


def prints(self, x):
    print(x.sum())  # noqa: T201
    return x


def global_statement(self, x):
    global count  # noqa: PLW0603
    count += 1
    return x


def global_list(self, x):
    SEEN.append(1)
    return x


def global_tensor(self, x):
    BANK[0] = x.mean()
    return x


def global_iterator(self, x):
    return x + next(ITERATOR)


def own_iterator(self, x):
    return x + next(self.iterator)


def logs(self, x):
    LOGGER.info("x")
    return x


def own_logger(self, x):
    self.log.info("x")
    return x


def locks(self, x):
    with LOCK:
        return x


def generator(self, x):
    return x + torch.rand(8, generator=GENERATOR)


def numpys(self, x):
    return x + float(NUMPYS.random())


def global_net(self, x):
    return NET(x)


def cache_method(self, x, cache):
    return x + cache.update(x)


def cache_append(self, x, seen):
    seen.append(1)
    return x


def cache_set(self, x, seen):
    seen.add(1)
    return x


def cache_item(self, x, cache):
    cache["x"] = x
    return x


def cache_number(self, x, cache):
    cache[0] = x
    return x


def cache_attribute(self, x, state):
    state.n = 1
    return x


def cache_extended(self, x, seen):
    seen += [1]
    return x


def default_list(self, x, seen=[]):  # noqa: B006
    seen.append(1)
    return x


def object_attribute(self, x):
    self.obj.n += 1
    return x


def object_method(self, x):
    return self.obj.put(x)


def object_property(self, x):
    return x * self.obj.counted


def own_property(self, x):
    return x * self.shown


def class_attribute(self, x):
    Base.number += 1
    return x


def class_list(self, x):
    self.kept.append(1)
    return x


def numpy_array(self, x):
    self.array += 1
    return x


def autograd_function(self, x):
    return Stateful.apply(x)


def warns(self, x):
    warnings.warn("x", stacklevel=1)
    return x


def writes(self, x):
    with open("x", "w") as file:  # noqa: PTH123
        file.write("x")
    return x


def sets(self, x):
    setattr(self, "a", x)  # noqa: B010
    return x


def executes(self, x):
    exec("x = 1")
    return x


def imports(self, x):
    import this

    return x, this


def yields(self, x):
    yield x


def seeds(self, x):
    torch.manual_seed(0)
    return x


def saves(self, x):
    torch.save(x, "x")
    return x


def goes_back(self, x):
    self.layer(x).sum().backward()
    return x


def registers(self, x):
    self.layer.register_forward_hook(lambda *_: None)
    return x


def hooks_tensor(self, x):
    y = self.layer(x)
    y.register_hook(lambda g: g)
    return y


def replaces_layer(self, x):
    self.layer = nn.Linear(8, 8)
    return x


def calls_given(self, x, layer):
    return layer(x)


def inner_prints(self, x):
    def inner(y):
        print(y)  # noqa: T201
        return y

    return checkpoint(inner, x, use_reentrant=False)


def late_binding(self, x):
    chosen = activate

    def inner(y):
        return chosen(y)

    chosen = print
    return inner(x)


def having(forward: Callable[..., Any]) -> nn.Module:
    return type("Net", (Base,), {"forward": forward})()  # type: ignore[no-any-return]
