"""The mode itself: several threads, numbers in place of tensors, memory that runs out, and errors of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import ampdoctor.record.twin.mode as mode_module
from ampdoctor.record.twin.called import called
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from ampdoctor.record.twin.plan import START
from ampdoctor.record.twin.second_opinion import LIMITS_S
from ampdoctor.record.twin.storages import Budget, TwinStorages
from tests.record.twin.beside import half
from tests.record.twin.recorded import EARLY, opinion, recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Follower:
    """Calls a function before each operation."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        self.not_twinned: Any = {}
        self.look = look

    def before(self, operation: Any) -> Any:
        """See an operation."""
        return self.look(operation)


def in_threads(act: Callable[[int], None], number: int = 2) -> None:
    """Let as many threads do the same at a time."""
    threads = [threading.Thread(target=act, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_threads_under_one_mode() -> None:
    twin, errors = CarriedTwin(FP32), list[Exception]()
    mode = TwinMode([twin], Places(lines=True), errors.append)
    found: dict[int, torch.Tensor] = {}
    wanted = {n: half(16, 16, seed=n) for n in range(2)}

    def work(n: int) -> None:
        x = wanted[n].clone()
        with mode:
            for _ in range(200):
                x = torch.tanh(x @ x) + 0.1
        found[n] = x

    in_threads(work)
    assert errors == []
    for n, x in wanted.items():
        expected = x.float()
        for _ in range(200):
            expected = torch.tanh(expected @ expected) + 0.1
        assert torch.equal(twin.values(found[n]), expected)
    del found[0], found[1], x
    assert len(twin.storages) == 0
    assert twin.storages.bytes == 0
    assert mode.operations == 2 * 200 * 3


def test_followers_look_one_at_a_time_and_never_around_the_run_s_own() -> None:
    looking, most = [0], [0]
    met = threading.Barrier(2, timeout=10)

    def look(operation: Any) -> None:
        looking[0] += 1
        most[0] = max(most[0], looking[0])
        threading.Event().wait(0.002)
        looking[0] -= 1

    errors: list[Exception] = []
    mode = TwinMode([Follower(look)], Places(lines=False), errors.append)

    original = called

    def meeting(func: Any, args: Any, kwargs: Any) -> Any:
        met.wait()  # both threads are within an operation of their own
        return original(func, args, kwargs)

    def work(n: int) -> None:
        with mode:
            for _ in range(5):
                torch.ones(2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mode_module, "called", meeting)
        in_threads(work)
    assert errors == []
    assert most == [1]


def test_a_twin_may_die_over_its_budget_and_in_another_thread() -> None:
    storages = TwinStorages()
    storages.budget = Budget(limit=1 << 20)
    tensors = [half(64, seed=n) for n in range(20)]
    for tensor in tensors:
        storages.copy_of(tensor, torch.float32)
    storages.budget.limit = 1

    def let_go(_: int) -> None:
        for _ in range(10):
            tensors.pop()

    del tensor
    in_threads(let_go)
    assert (len(storages), storages.bytes, storages.budget.used) == (0, 0, 0)


def test_a_number_saved_for_backward_can_be_looked_at() -> None:
    """`_local_scalar_dense`, which `item` calls, takes no number for a tensor."""
    for number in (3.3, 4, True):
        x = torch.ones((), dtype=torch.float64, requires_grad=True)
        node: Any = (x * number).grad_fn
        errors: list[Exception] = []
        with TwinMode([], Places(lines=False), errors.append):
            assert node._saved_other.item() == number
        assert errors == []
    assert called(torch.ops.aten._local_scalar_dense.default, (3.3,), {}) == 3.3


@pytest.mark.parametrize("arguments", ["number", "tensor"])
def test_an_operation_of_the_user_s_that_fails_is_not_run_again(arguments: str) -> None:
    runs = []
    with torch.library._scoped_library("ampdoctor_tests", "DEF") as library:
        library.define("fails(Tensor x, float y) -> Tensor")

        def fails(x: torch.Tensor, y: float) -> torch.Tensor:
            runs.append(1)
            raise RuntimeError("Unable to cast, says the user")

        library.impl("fails", fails, "CompositeExplicitAutograd")
        function: Any = torch.ops.ampdoctor_tests.fails.default
        x: Any = 1.0 if arguments == "number" else torch.ones(2)
        with pytest.raises(RuntimeError, match="Unable to cast"):
            called(function, (x, 2.0), {})
    assert len(runs) == (arguments == "tensor")


class Short:
    """An allocator that fails once at a certain operation, while there is a second opinion."""

    def __init__(self, name: str, after: int = 0) -> None:
        self.name, self.left, self.times = name, after, 0
        self.original = called

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.name in str(func):
            self.left -= 1
            if self.left < 0 and not self.times:
                self.times += 1
                raise torch.OutOfMemoryError("CUDA out of memory")
        return self.original(func, args, kwargs)


def test_out_of_memory_beside_twins_is_not_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    twin, errors = CarriedTwin(FP32), list[Exception]()

    def on_error(error: Exception) -> None:
        errors.append(error)
        twin.storages.clear()

    mode = TwinMode([twin], Places(lines=False), on_error)
    short = Short("aten.mm")
    monkeypatch.setattr(mode_module, "called", short)
    x = half(8, 8)
    with mode:
        y = x * 2
        product = y @ y
        later = product + 1
    assert torch.equal(later, (x * 2) @ (x * 2) + 1)
    assert [type(e) for e in errors] == [torch.OutOfMemoryError]
    assert (mode.on, twin.storages.bytes, short.times) == (False, 0, 1)


MAY_HAVE_BEGUN: dict[str, Callable[[torch.Tensor], Any]] = {
    "aten.add_": lambda x: x.add_(1),
    "aten.bernoulli_": lambda x: x.bernoulli_(0.5),
    "aten.native_dropout": lambda x: torch.native_dropout(x, 0.5, True),
}


@pytest.mark.parametrize("name", MAY_HAVE_BEGUN)
def test_what_may_have_begun_is_not_called_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = []
    mode = TwinMode([CarriedTwin(FP32)], Places(lines=False), errors.append)
    monkeypatch.setattr(mode_module, "called", Short(name))
    x = half(8, 8)
    with mode, pytest.raises(torch.OutOfMemoryError):
        MAY_HAVE_BEGUN[name](x)
    assert len(errors) == 1


def test_without_a_second_opinion_it_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = []
    mode = TwinMode([CarriedTwin(FP32)], Places(lines=False), errors.append)
    mode.on = False
    monkeypatch.setattr(mode_module, "called", Short("aten.mm"))
    with mode, pytest.raises(torch.OutOfMemoryError):
        half(8, 8) @ half(8, 8)
    assert errors == []


def _weights_of_a_training() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(EARLY + 2):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(4, 8)).float().square().mean()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_a_step_of_too_many_operations_is_looked_at_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _weights_of_a_training()
    monkeypatch.setitem(LIMITS_S, START, 0.0)
    found, run = recorded(tmp_path / "run", _weights_of_a_training)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert opinion(run, 0).declined == "looking at its operations took longer than 0 seconds"
    assert opinion(run, 0).operations == 2
    assert [op for op in run.ops if op.step == 0] == []
    assert opinion(run).declined is None


def test_a_recorded_step_that_was_short_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _weights_of_a_training()
    short = Short("aten.gelu_backward")
    monkeypatch.setattr(mode_module, "called", short)
    found, run = recorded(tmp_path / "run", _weights_of_a_training)
    assert short.times == 1
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert opinion(run, 0).declined == "out of memory"  # the first step is looked at, and so the first to be short
    assert opinion(run).declined is None


@pytest.mark.parametrize("what", ["traced", "traits_of", "current", "before"])
def test_its_own_errors_are_not_the_user_s(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("ours")

    places = Places(lines=False)
    follower = Follower(fail if what == "before" else lambda _: None)
    if what in {"traced", "traits_of"}:
        monkeypatch.setattr(mode_module, what, fail)
    elif what == "current":
        monkeypatch.setattr(places, "current", fail)
    errors: list[Exception] = []
    mode = TwinMode([follower], places, errors.append)
    with mode:
        x = torch.ones(3) + 1
    assert torch.equal(x, torch.full((3,), 2.0))
    assert [str(e) for e in errors] == ["ours"]
    assert not mode.on
