"""Numbers of every role, derived by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from ampdoctor.trace.schema import TensorRow
    from tests.record.recording import Recording

INF, NAN = math.inf, math.nan


def _linear(weight: list[list[float]]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
    return layer


def _exponents(row: TensorRow) -> dict[int, int]:
    return {row.exp_lowest + i: n for i, n in enumerate(row.exp_counts) if n}


def test_every_role_of_one_linear_layer(recording: Recording) -> None:
    model = _linear([[1.0, 0.0], [-4.0, 0.5]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    x = torch.tensor([[2.0, 8.0]])
    with recording.start(model=model, every=1):
        # y = (2, -4); d(sum y²)/dy = (4, -8); dW = (8, 32; -16, -64); W -= dW / 4.
        model(x).square().sum().backward()
        optimizer.step()

    row = recording.tensor("activation", slot="in")
    assert (row.module, row.shape, row.numel, row.dtype) == ("", [1, 2], 2, "float32")
    assert (_exponents(row), row.absmax, row.zeros) == ({1: 1, 3: 1}, 8.0, 0)
    assert row.rms == pytest.approx(math.sqrt((4 + 64) / 2))

    row = recording.tensor("activation", slot="out")
    assert (_exponents(row), row.absmax, row.inputs_finite, row.grad_enabled) == ({1: 1, 2: 1}, 4.0, True, True)

    row = recording.tensor("grad_output")
    assert (row.slot, _exponents(row), row.absmax, row.loss_scale) == ("out", {2: 1, 3: 1}, 8.0, None)

    row = recording.tensor("weight")
    assert (row.slot, row.zeros, _exponents(row), row.absmax) == ("weight", 1, {-1: 1, 0: 1, 2: 1}, 4.0)

    row = recording.tensor("weight_grad")
    assert (row.slot, row.shape, _exponents(row)) == ("weight", [2, 2], {3: 1, 4: 1, 5: 1, 6: 1})

    row = recording.tensor("update")
    assert (row.slot, _exponents(row), row.absmax) == ("weight", {1: 1, 2: 1, 3: 1, 4: 1}, 16.0)

    row = recording.tensor("optimizer_state")
    assert (row.slot, row.absmax) == ("weight.momentum_buffer", 64.0)

    assert [r.seq for r in recording.tensors()] == sorted(r.seq for r in recording.tensors())
    assert {(r.step, r.micro_batch, r.call) for r in recording.tensors()} <= {(0, 0, 0), (0, 1, 0)}


def test_what_is_not_finite_is_counted_apart(recording: Recording) -> None:
    model = nn.Identity()
    values = [0.0, -0.0, NAN, INF, INF, -INF, 2.0**-140, -(2.0**-126), 3.0]
    with recording.start(model=model, every=1) as recorder:
        model(torch.tensor(values))
        recorder.step()
    row = recording.tensor("activation")
    assert (row.zeros, row.nan, row.posinf, row.neginf, row.nonfinite) == (2, 1, 2, 1, 4)
    assert (row.subnormal, row.absmax, _exponents(row)) == (1, 3.0, {-140: 1, -126: 1, 1: 1})
    # Of the five finite elements.
    assert row.rms == pytest.approx(math.sqrt(9 / 5))


@pytest.mark.parametrize(
    ("dtype", "subnormal"),
    [(torch.float16, 2), (torch.bfloat16, 0), (torch.float32, 0), (torch.float8_e5m2, 2), (torch.float8_e4m3fn, 1)],
)
def test_subnormal_depends_on_the_dtype(recording: Recording, dtype: torch.dtype, subnormal: int) -> None:
    # FP16 and E5M2 are normal from 2^-14 up; E4M3fn from 2^-6, with nothing left below 2^-9.
    model = nn.Identity()
    values = torch.tensor([2.0**-14, 2.0**-15, 2.0**-16, 1.0, 2.0**-9, 0.0]).to(dtype)
    with recording.start(model=model, every=1) as recorder:
        model(values)
        recorder.step()
    row = recording.tensor("activation")
    assert (row.dtype, row.subnormal) == (str(dtype).removeprefix("torch."), subnormal)


def test_one_number_and_none(recording: Recording) -> None:
    model = nn.Identity()
    with recording.start(model=model, every=1) as recorder:
        model(torch.tensor(0.25))
        model(torch.zeros(0, 3))
        recorder.step()
    scalar, empty = recording.tensors("activation")
    assert (scalar.shape, scalar.numel, scalar.absmax, scalar.exp_counts) == ([], 1, 0.25, [1])
    assert (empty.shape, empty.numel, empty.absmax, empty.rms, empty.exp_counts) == ([0, 3], 0, 0.0, 0.0, [])


def test_what_cannot_be_measured_is_left_out(recording: Recording) -> None:
    class Odd(nn.Module):
        def forward(self, kind: str) -> torch.Tensor:
            return {
                "integer": torch.arange(3), "bool": torch.ones(2, dtype=torch.bool),
                "sparse": torch.eye(3).to_sparse(), "meta": torch.ones(2, device="meta"),
                "subclass": torch.ones(2).as_subclass(_Subclass), "complex": torch.tensor([3 + 4j, 0j]),
                "conjugate": torch.tensor([3 + 4j]).conj().imag,
            }[kind]  # fmt: skip

    model = Odd()
    with recording.start(model=model, every=1) as recorder:
        for kind in ("integer", "bool", "sparse", "meta", "subclass", "complex", "conjugate"):
            model(kind)
        recorder.step()
    number, conjugate = recording.tensors("activation")
    assert (number.dtype, number.shape, number.numel, number.zeros) == ("complex64", [2], 4, 2)
    assert (_exponents(number), _exponents(conjugate)) == ({1: 1, 2: 1}, {2: 1})


class _Subclass(torch.Tensor):
    pass


def test_a_sparse_gradient_does_not_disturb(recording: Recording) -> None:
    model = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        model(torch.tensor([1])).sum().backward()
        optimizer.step()
    assert recording.tensors("weight_grad") == []
    assert recording.tensor("update").zeros == 6


def test_the_loss_scale_multiplies_gradients_only(recording: Recording) -> None:
    model = _linear([[1.0, 2.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with recording.start(model=model, every=1):
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    scales = {(r.role, r.loss_scale, r.absmax) for r in recording.tensors() if r.slot != "in"}
    assert scales == {
        ("activation", None, 3.0), ("weight", None, 2.0), ("grad_output", 64.0, 64.0), ("weight_grad", 64.0, 64.0),
        ("update", None, 1.0),
    }  # fmt: skip


def test_a_gradient_unscaled_by_the_user_is_recorded_as_it_was_before(recording: Recording) -> None:
    model = _linear([[1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with recording.start(model=model, every=1):
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    row = recording.tensor("weight_grad")
    assert (row.absmax, row.loss_scale) == (8.0, 8.0)
    assert recording.tensor("update").absmax == pytest.approx(0.5, rel=1e-5)


def test_nothing_is_measured_on_a_step_that_is_not_examined(recording: Recording) -> None:
    model = _linear([[1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1000):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    assert {r.step for r in recording.tensors()} == {0, 1, 2}
    assert [(s.examined, s.reason) for s in recording.run.steps] == [(True, "first")] * 3 + [(False, None)] * 3
    assert [s.examination_ms is not None for s in recording.run.steps] == [True] * 3 + [False] * 3
