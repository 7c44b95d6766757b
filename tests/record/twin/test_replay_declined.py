"""Steps that can't be executed again, each with its reason; and nothing that is kept outlives its step."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from ampdoctor.record.twin.replay import untouched
from tests.record.twin.replayed_networks import CLASSES, WIDTH, mlp
from tests.record.twin.replaying import Keeper, Watch, linear

if TYPE_CHECKING:
    from collections.abc import Callable


def declined(keeper: Keeper) -> str:
    watch = Watch()
    outcome = keeper.replay(watch)
    assert outcome.declined is not None
    return outcome.declined


def test_no_module_was_called(keeper: Keeper) -> None:
    reason = "no module was called with gradients enabled, as far as has been seen"
    assert declined(keeper) == reason
    with torch.no_grad():
        linear(keeper)(torch.randn(2, WIDTH))
    assert declined(keeper) == reason


def test_an_input_was_changed_in_place(keeper: Keeper) -> None:
    net, x = linear(keeper), torch.randn(2, WIDTH)
    keeper.backward(net(x).sum())
    x.add_(1)
    assert declined(keeper) == "an input has been changed in place since"


def test_an_input_changed_behind_torchs_back(keeper: Keeper) -> None:
    net, x = linear(keeper), torch.randn(2, WIDTH)
    keeper.backward(net(x).sum())
    x.numpy()[:] = 1
    expected = "the step did not come out the same again: output 0 of Linear differs"
    assert declined(keeper) == expected
    outcome = keeper.replay(Watch())
    assert outcome.confirmed is False


def test_the_weights_have_changed(keeper: Keeper) -> None:
    net = linear(keeper)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    optimizer.step()
    assert declined(keeper) == "the weights have changed since"


def test_a_later_call_can_be_replayed_though_an_earlier_one_cannot(keeper: Keeper) -> None:
    first, second = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)
    keeper.meet(first, second)
    keeper.backward(first(torch.randn(2, WIDTH)).sum())
    torch.optim.SGD(first.parameters(), 0.1).step()
    keeper.backward(second(torch.randn(2, WIDTH)).sum())
    outcome = keeper.replay(Watch())
    assert (outcome.confirmed, outcome.calls, outcome.passes) == (True, 1, 1)
    assert outcome.left_out == ("the weights have changed since (x1)",)


def test_gradients_of_gradients(keeper: Keeper) -> None:
    net, x = linear(keeper), torch.randn(2, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
    keeper.backward(gradient.square().sum())
    assert declined(keeper) == "it takes gradients of gradients"


def test_more_than_may_be_kept() -> None:
    keeper = Keeper(most_bytes=100)
    net = linear(keeper)
    keeper.backward(net(torch.randn(20, WIDTH)).sum())
    assert declined(keeper).startswith("its inputs and gradients take more than")
    assert not keeper.kept.calls
    keeper.kept.remove()


def test_an_iterator_as_input(keeper: Keeper) -> None:
    class Reading(nn.Linear):
        def forward(self, batches: Any) -> torch.Tensor:
            return super().forward(next(batches))

    net = Reading(WIDTH, CLASSES)
    keeper.meet(net)
    keeper.backward(net(iter([torch.randn(2, WIDTH)])).sum())
    assert declined(keeper) == "an argument is an iterator, which gives what it holds only once"


def test_a_result_that_is_another_each_time(keeper: Keeper) -> None:
    class Fading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(WIDTH, CLASSES), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            out: torch.Tensor = self.layer(x) / self.calls
            return out

    net = Fading()
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert declined(keeper).startswith("the step did not come out the same again")
    assert net.calls == 1


@pytest.mark.parametrize("wrap", [nn.DataParallel])
def test_a_module_of_several_devices(keeper: Keeper, wrap: Callable[[nn.Module], nn.Module]) -> None:
    net = wrap(nn.Linear(WIDTH, CLASSES))
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert declined(keeper) == "DataParallel may not be called an additional time"


def test_several_ranks(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    net = linear(keeper)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert declined(keeper).startswith("several ranks train together")


def test_inside_autocast(keeper: Keeper) -> None:
    net = linear(keeper)
    with torch.autocast("cpu", torch.bfloat16):
        keeper.backward(net(torch.randn(2, WIDTH)).float().sum())
        assert "autocast region that is still open" in declined(keeper)
    assert keeper.replay(Watch()).confirmed


def test_too_little_memory(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    net = linear(keeper)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    monkeypatch.setattr(untouched, "fits", lambda tensors: False)
    assert declined(keeper) == "too little memory for a copy of the weights"


def test_out_of_memory(keeper: Keeper) -> None:
    class Greedy(nn.Linear):
        short = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if Greedy.short:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    net = Greedy(WIDTH, CLASSES)
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    Greedy.short = True
    assert declined(keeper) == "out of memory"


def test_hooks_that_step_in_the_backward_pass_are_not_set_off(keeper: Keeper) -> None:
    net = nn.Linear(WIDTH, CLASSES)
    keeper.meet(net)
    stepped: list[torch.Tensor] = []
    handle = net.weight.register_post_accumulate_grad_hook(stepped.append)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).confirmed
    assert len(stepped) == 1
    handle.remove()


def test_nothing_outlives_its_step(keeper: Keeper) -> None:
    net = mlp()
    keeper.meet(net)
    x = torch.randn(6, WIDTH)
    out = net(x)
    out.register_hook(lambda g: arrived.append(weakref.ref(g)))
    arrived: list[weakref.ref[torch.Tensor]] = []
    keeper.backward(out.square().sum(), retain_graph=True)
    assert keeper.replay(Watch()).confirmed
    batch = weakref.ref(x)
    del x
    assert batch() is not None
    keeper.kept.forget()
    gc.collect()
    # The user's own graph, which saves the batch for its backward, is still there.
    assert arrived
    assert arrived[0]() is None
    del out
    gc.collect()
    assert batch() is None


def test_a_step_forgets_those_before_it(keeper: Keeper) -> None:
    net = linear(keeper)
    for _ in range(3):
        keeper.kept.forget()
        keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert len(keeper.kept.calls) == 1
    assert keeper.replay(Watch()).calls == 1


def test_a_call_that_was_left_by_an_exception(keeper: Keeper) -> None:
    net = linear(keeper)
    with pytest.raises(RuntimeError):
        net(torch.randn(2, WIDTH + 1))
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    assert keeper.replay(Watch()).confirmed
