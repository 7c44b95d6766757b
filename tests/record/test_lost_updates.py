"""Updates that half weights round away, against brute force in FP32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from torch import nn

from ampdoctor.record import lost_updates
from ampdoctor.record.lost_updates import LOST_UPDATE_COLUMNS, lost_update_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.trace.schema import TensorRow
    from tests.record.recording import Recording

SHAPE = (40, 25)
HALF = [torch.bfloat16, torch.float16]


def _weights(dtype: torch.dtype) -> nn.Parameter:
    """Weights and gradients of many sizes, so that some updates are lost and some are not."""
    weight = nn.Parameter((torch.randn(SHAPE) * torch.exp2(torch.randint(-6, 3, SHAPE))).to(dtype))
    gradient = torch.randn(SHAPE) * torch.exp2(torch.randint(-12, 2, SHAPE))
    gradient[:3] = 0.0
    weight.grad = gradient.to(dtype)
    return weight


def _step(optimizer: torch.optim.Optimizer, steps: int = 1) -> tuple[dict[str, float], torch.Tensor, torch.Tensor]:
    """Take `steps` steps and return the counts of the last, and the weights before and after it."""
    (group,) = optimizer.param_groups
    (weight,) = group["params"]
    for _ in range(steps):
        before = weight.detach().clone()
        optimizer.step()
    after = weight.detach().clone()
    counts = lost_update_counts(before, after, weight.grad, group, optimizer.state[weight])
    return dict(zip(LOST_UPDATE_COLUMNS, counts.tolist(), strict=True)), before, after


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("chunk", [1, 70, 1 << 22])
def test_sgd_is_counted_exactly(dtype: torch.dtype, chunk: int) -> None:
    weight = _weights(dtype)
    assert weight.grad is not None
    update = weight.grad.float() / 128
    with mock.patch.object(lost_updates, "_CHUNK", chunk):
        found, before, after = _step(torch.optim.SGD([weight], lr=1 / 128))
    # w - u == w, rounded to the nearest in the weight's format, although u is not 0.
    meant = update != 0
    stuck = meant & ((before.float() - update).to(dtype) == before)
    assert torch.equal(after, (before.float() - update).to(dtype))
    assert found["expected_to_move"] == int(meant.sum()) == (SHAPE[0] - 3) * SHAPE[1]
    assert found["unchanged"] == int(stuck.sum())
    assert 0.1 < found["unchanged"] / found["expected_to_move"] < 0.9
    energy = float(update[stuck].double().square().sum() / update.double().square().sum())
    assert found["energy_unchanged"] == pytest.approx(energy, rel=1e-6)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.5, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam-l2": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "rmsprop-momentum": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "tensor-lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3)),
}  # fmt: skip


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_plain_rounding_moves_none_that_is_surely_small(make: Any, dtype: torch.dtype, steps: int) -> None:
    found, before, after = _step(make([_weights(dtype)]), steps)
    assert found["small_updates_moved"] == 0
    moved = int((before != after).sum())
    assert found["expected_to_move"] - found["unchanged"] <= moved
    assert found["unchanged"] <= found["expected_to_move"] <= before.numel()


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "adamw", "adamw-fused"])
def test_most_of_what_is_lost_is_surely_small(name: str) -> None:
    # Were none called small, stochastic rounding could never be told from plain rounding.
    found, _, _ = _step(OPTIMIZERS[name]([_weights(torch.bfloat16)]), 3)
    assert found["small_updates"] > 0.3 * found["unchanged"] > 0


def test_an_adam_that_keeps_its_step_elsewhere() -> None:
    # apex's FusedAdam counts steps in the group; others nowhere that could be known.
    weight = _weights(torch.bfloat16)
    optimizer = torch.optim.Adam([weight], lr=1e-3)
    expected, before, after = _step(optimizer, 3)
    state = dict(optimizer.state[weight])
    group = optimizer.param_groups[0] | {"step": state.pop("step")}
    assert weight.grad is not None
    found = lost_update_counts(before, after, weight.grad, group, state)
    assert found.tolist() == pytest.approx(list(expected.values()))
    del group["step"]
    without = dict(
        zip(LOST_UPDATE_COLUMNS, lost_update_counts(before, after, weight.grad, group, state).tolist(), strict=True)
    )
    assert without["unchanged"] == expected["unchanged"]
    assert without["small_updates"] == 0


@pytest.mark.parametrize("name", ["rmsprop", "adagrad", "adamax"])
def test_without_the_size_of_the_update_none_is_called_small(name: str) -> None:
    assert _step(OPTIMIZERS[name]([_weights(torch.bfloat16)]))[0]["small_updates"] == 0


class _Stochastic(torch.optim.Optimizer):
    """SGD whose weights are rounded up or down by chance."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "dampening": 0.0})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                wide = p.detach().float() - group["lr"] * p.grad.float()
                noise = torch.randint(0, 1 << 16, wide.shape, dtype=torch.int32)
                bits = (wide.view(torch.int32) + noise) & -(1 << 16)
                p.data.copy_(bits.view(torch.float32))


def test_stochastic_rounding_shows() -> None:
    found, _, _ = _step(_Stochastic([_weights(torch.bfloat16)], lr=0.01))
    # Moved with probability |u| / ulp, which is 1/8 on average below a quarter of an ulp, and less for smaller ones.
    assert 0.001 < found["small_updates_moved"] / found["small_updates"] < 0.25


def test_elements_that_nothing_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.ones(6, dtype=torch.bfloat16))
    weight.grad = torch.tensor([0.0, torch.inf, torch.nan, -torch.inf, 1.0, 1e-6], dtype=torch.bfloat16)
    found, _, _ = _step(torch.optim.SGD([weight], lr=0.5))
    assert found == {
        "expected_to_move": 2, "unchanged": 1, "small_updates": 1, "small_updates_moved": 0,
        "energy_unchanged": pytest.approx(1e-12, rel=0.02),
    }  # fmt: skip


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    weight = nn.Parameter(torch.ones(shape, dtype=torch.bfloat16))
    weight.grad = torch.full(shape, 2.0**-20, dtype=torch.bfloat16)
    found, _, _ = _step(torch.optim.Adam([weight], lr=1e-5))
    assert (found["expected_to_move"], found["unchanged"]) == (weight.numel(), weight.numel())


def _updates(recording: Recording, model: nn.Module, optimizer: torch.optim.Optimizer, x: Any) -> list[TensorRow]:
    with recording.start(model=model, every=1):
        for _ in range(2):
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            optimizer.step()
    return recording.tensors("update")


def test_half_weights_have_the_columns(recording: Recording) -> None:
    model = nn.Linear(4, 4).bfloat16()
    rows = _updates(recording, model, torch.optim.AdamW(model.parameters(), lr=1e-5), torch.ones(2, 4).bfloat16())
    assert [(r.dtype, r.slot) for r in rows[:2]] == [("bfloat16", "weight"), ("bfloat16", "bias")]
    assert [r.expected_to_move for r in rows[:2]] == [16, 4]
    weights = [r for r in rows if r.slot == "weight"]
    assert all(r.unchanged and r.unchanged == r.zeros for r in weights)
    assert all(r.small_updates_moved == 0 for r in rows)
    assert {r.dtype for r in recording.tensors("optimizer_state")} == {"bfloat16"}


def test_fp32_weights_have_none(recording: Recording) -> None:
    model = nn.Linear(4, 4)
    rows = _updates(recording, model, torch.optim.AdamW(model.parameters(), lr=1e-5), torch.ones(2, 4))
    assert {(r.dtype, r.expected_to_move, r.unchanged, r.small_updates) for r in rows} == {
        ("float32", None, None, None)
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_sparse_gradients_do_not_disturb(recording: Recording, dtype: torch.dtype) -> None:
    model = nn.Embedding(5, 3, sparse=True, dtype=dtype)
    rows = _updates(recording, model, torch.optim.SGD(model.parameters(), lr=0.5), torch.tensor([1, 3]))
    assert [(r.zeros, r.expected_to_move) for r in rows] == [(9, None)] * 2


def test_complex_weights_have_updates(recording: Recording) -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor([1 + 2j, 3 + 4j]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with recording.start(model=model, every=1):
        (model.weight * 2).real.sum().backward()
        optimizer.step()
    row = recording.tensor("update")
    # The gradient of the real part is (2, 2), of the imaginary part 0.
    assert (row.dtype, row.numel, row.zeros, row.absmax) == ("complex64", 4, 2, 1.0)
