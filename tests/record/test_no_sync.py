"""Recording never waits for the device: on an accelerator no value is looked at while the training runs.

Meta tensors have no values, so whoever looks at one raises; a GPU says so itself, in its debug mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ampdoctor.record import log, optimizer, tensor_log
from ampdoctor.record.log import Deferred, StepLog
from ampdoctor.record.lost_updates import LOST_UPDATE_COLUMNS, lost_update_counts
from ampdoctor.record.stats import EXTRA, statistics_vector, torch_ops
from ampdoctor.record.transfer import Transfer
from tests.record.models import CLASSES, FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.record.recording import Recording

HALF = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def fake_tensors_pass_for_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a fake tensor stands for a plain one on a device; elsewhere it is a class of its own, and left alone."""
    monkeypatch.setattr(log, "_asks_its_class", lambda _: False)


def test_a_meta_tensor_cannot_be_looked_at() -> None:
    x = torch.zeros(3, device="meta")
    for look in (lambda: x.sum().item(), lambda: bool(x.sum() > 0), x.tolist, x.cpu):
        with pytest.raises((RuntimeError, NotImplementedError)):
            look()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF, torch.complex64])
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (0,), (40,)])
def test_statistics_are_taken_blindly(dtype: torch.dtype, shape: tuple[int, ...], monkeypatch: Any) -> None:
    monkeypatch.setattr(torch_ops, "_CHUNK", 16)
    vector = statistics_vector(torch.zeros(shape, dtype=dtype, device="meta"))
    assert (vector.shape, vector.dtype, vector.device.type) == ((EXTRA,), torch.float64, "meta")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"momentum_buffer": torch.zeros(3, device="meta")},
        {
            "exp_avg": torch.zeros(3, device="meta"), "exp_avg_sq": torch.zeros(3, device="meta"),
            "step": torch.ones((), device="meta"),
        },
    ],
    ids=["sgd", "momentum", "adam-capturable"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", HALF)
def test_lost_updates_are_counted_blindly(dtype: torch.dtype, state: dict[str, Any]) -> None:
    weights, gradient = (torch.zeros(3, dtype=dtype, device="meta") for _ in range(2))
    group = {"lr": torch.ones((), device="meta"), "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    counts = lost_update_counts(weights, weights, gradient, group, state)
    assert (counts.shape, counts.dtype) == ((len(LOST_UPDATE_COLUMNS),), torch.float64)


def test_a_scalar_on_the_device_is_queued_and_not_read() -> None:
    step = StepLog(0, None)
    with FakeTensorMode():
        loss = torch.ones((), device="cuda", requires_grad=True)
        assert step.scalar(loss) == Deferred(0)
        assert step.scalar(torch.ones(3, device="cuda")) is None
        (kept,) = step._vectors
        assert (kept.shape, kept.dtype, kept.requires_grad) == ((1,), torch.float64, False)


class _NoTransfer(Transfer):
    """A transfer of what has no values."""

    def __init__(self, vectors: Sequence[torch.Tensor]) -> None:
        assert all(v.dtype is torch.float64 and v.ndim == 1 for v in vectors)
        self._sizes = [v.numel() for v in vectors]
        self._parts = []

    def values(self) -> list[Any]:
        return [np.zeros(size) for size in self._sizes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_a_whole_examined_step_looks_at_nothing(
    recording: Recording, dtype: torch.dtype, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for holder in (tensor_log, optimizer):
        monkeypatch.setattr(holder, "measurable", torch.is_floating_point)
    monkeypatch.setattr(log, "Transfer", _NoTransfer)
    monkeypatch.setattr(optimizer, "fits", lambda _: True)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES)).to("meta", dtype)
    trained_by = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    with recording.start(every=1):
        for _ in range(3):
            trained_by.zero_grad()
            x = torch.zeros(4, FEATURES, dtype=dtype, device="meta")
            model(x).float().square().mean().backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
            trained_by.step()
    assert {row.role for row in recording.run.tensors()} >= {"activation", "grad_output", "weight_grad", "update"}
    assert len(recording.run.steps) == 3


def test_numbers_wait_for_their_transfer() -> None:
    step = StepLog(3, "first")
    step._vectors = [torch.tensor([2.0], dtype=torch.float64), torch.tensor([5.0], dtype=torch.float64)]
    step.row("steps", lambda values: (values.number(Deferred(0)), values.number(Deferred(1)), values.number(7.0)))
    step.row("steps", lambda _: None)
    assert step.finish(step.depart()).rows == [("steps", (2.0, 5.0, 7.0))]
