"""Legal but unusual code of the user's: it is recorded as far as it can be, and never ends the recording."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ampdoctor.record.lost_updates import understood
from ampdoctor.record.optimizer import OptimizerNames
from ampdoctor.record.tensors import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.recorder import Recorder
    from tests.record.recording import Recording


class _Raises:
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@dataclass
class _Output:
    loss: torch.Tensor
    rest: Any = None


@dataclass
class _Slots:
    __slots__ = ("loss",)
    loss: torch.Tensor


class _List(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        raise TypeError("no slices")


def _half_set(cls: Any) -> Any:
    return object.__new__(cls)


_ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (torch.fx.Proxy(torch.fx.Graph().placeholder("x")), 0),
        (_Raises(), 0),
        (_Output, 0),
        (_half_set(_Output), 0),
        (_half_set(_Slots), 0),
        (_Slots(_ONE), 1),
        (_Output(_ONE, {"a": [_ONE, (_ONE,)]}), 3),
        (_List([_ONE, _ONE]), 2),
        ([_ONE] * 40, 16),
    ],
    ids=range(9),
)
def test_tensors_are_found_without_asking_the_object(value: Any, count: int) -> None:
    assert len(list(tensors_in(value))) == count


class _Shadowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 1)
        self.parameters = self.named_modules = self.modules = None  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


class _HalfBuilt(nn.Module):
    def __init__(self) -> None:
        """Leaves nn.Module's own undone."""


class _Named(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.name = "relu"
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def _named_sum(y: torch.Tensor) -> Any:
    return _Named.apply(y).sum()  # type: ignore[no-untyped-call]


class _Wrapper(torch.optim.Optimizer):
    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def step(self) -> None:  # type: ignore[override]
        self.inner.step()


class _TupleState(torch.optim.SGD):
    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad)
            self.state[p] = (p.grad, 1)


class _Replaces(torch.optim.SGD):
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        group["params"] = [nn.Parameter(p.detach().clone()) for p in group["params"]]


def _train(model: nn.Module, optimizer: Any, loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        loss(model(torch.randn(3, 4))).backward()
        nn.utils.clip_grad_norm_(model.inner.parameters(), 1.0)  # type: ignore[union-attr]
        optimizer.step()


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (_sgd, torch.sum),
        (_sgd, _named_sum),
        (_sgd, lambda y: (y.sum() * torch.tensor(1j)).real),
        (lambda p: _Wrapper(_sgd(p)), torch.sum),
        (lambda p: _TupleState(p, lr=0.1), torch.sum),
        (lambda p: _Replaces(p, lr=0.1), torch.sum),
    ],
    ids=["shadowed", "name", "complex", "wrapper", "tuple", "replaces"],
)
def test_odd_training_is_recorded(recording: Recording, make: Any, loss: Any) -> None:
    half_built = _HalfBuilt()
    with recording.start(every=1):
        model = _Shadowed()
        optimizer = make(model.inner.parameters())
        _train(model, getattr(optimizer, "inner", optimizer), loss)
    assert len(recording.run.steps) == 2
    assert recording.tensors("activation")
    assert half_built is not None


def test_calls_that_torch_refuses(recording: Recording) -> None:
    model, scaler = nn.Linear(2, 1), torch.amp.GradScaler("cpu")
    with recording.start(every=1):
        bad: list[Any] = [
            torch.autograd.backward,
            lambda: nn.utils.clip_grad_norm_(model.parameters(), "abc"),  # type: ignore[arg-type]
            scaler.unscale_,
            lambda: scaler.unscale_(None),  # type: ignore[arg-type]
            lambda: scaler.step(None),  # type: ignore[arg-type]
        ]
        for call in bad:
            with pytest.raises((TypeError, ValueError, AttributeError, AssertionError)):
                call()
        optimizer = _sgd(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(recording.run.steps) == 1


_W = torch.ones(2, 3, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("group", "state", "known"),
    [
        ({"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8}, {"exp_avg": _W, "exp_avg_sq": _W}, True),
        ({"lr": torch.tensor(0.1)}, {"momentum_buffer": None}, True),
        ({"lr": None}, {}, False),
        ({"lr": 0.1, "eps": (1e-30, 1e-3)}, {}, False),
        ({"lr": 0.1, "betas": (0.9, 0.99, 0.999)}, {"exp_avg": _W, "exp_avg_sq": _W}, False),
        ({"lr": 0.1}, {"exp_avg": _W[:1], "exp_avg_sq": _W[:1]}, False),
        ({"lr": 0.1}, {"exp_avg_sq": _W}, False),
        ({"lr": 0.1}, {"momentum_buffer": (_W, _W)}, False),
    ],
)
def test_only_known_optimizers_are_understood(group: Any, state: Any, known: bool) -> None:
    assert understood(_W, group, state) is known


def test_names_are_not_given_twice() -> None:
    names, given = OptimizerNames(), set()
    kept = []
    for index in range(20):
        optimizer = _sgd([nn.Parameter(torch.ones(1))])
        given.add(names.name(optimizer))
        if index % 2:
            kept.append(optimizer)
    assert len(given) == 20


def test_clipping_a_generator_names_the_optimizer(recording: Recording) -> None:
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    with recording.start(every=1):
        optimizers = [_sgd(a.parameters()), _sgd(b.parameters())]
        for optimizer in optimizers:
            optimizer.zero_grad()
        (a(torch.ones(1, 2)) + b(torch.ones(1, 2))).sum().backward()
        nn.utils.clip_grad_norm_(b.parameters(), 1.0)
        nn.utils.clip_grad_norm_((p for p in a.parameters()), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    assert [c.target for c in recording.calls("clip_norm")] == ["optimizer1", None]


class _CountsDispatch(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


class _CountsFunctions(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _counted() -> tuple[int, int]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    dispatch, functions = _CountsDispatch(), _CountsFunctions()  # type: ignore[no-untyped-call]
    with dispatch, functions:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    return dispatch.calls, functions.calls


def test_modes_of_the_users_do_not_see_us(recording: Recording) -> None:
    plain = _counted()
    with recording.start(every=1):
        assert _counted() == plain
    assert recording.tensors("update")


def test_fake_tensors_are_left_alone(recorder: Recorder) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = nn.Linear(2, 1)
        optimizer = _sgd(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert recorder._state.log.step == 0


def test_the_cache_of_cast_weights_is_kept(recorder: Recorder) -> None:
    model = nn.Linear(4, 4)
    torch.set_autocast_enabled("cpu", True)
    try:
        first = model(torch.ones(2, 4)).grad_fn.next_functions[-1][0]
        second = model(torch.ones(2, 4)).grad_fn.next_functions[-1][0]
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()
    assert first.next_functions[0][0] is second.next_functions[0][0]
    assert recorder._state.active


def test_threads_that_train_beside(recording: Recording) -> None:
    def train(seed: int) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (seed + 1))
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    with recording.start(every=1):
        train(0)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(train, range(3)))
    assert len(recording.run.steps) == 20
