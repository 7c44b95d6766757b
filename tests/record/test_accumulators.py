"""Sums into totals that code keeps in half: which are seen, and what is told of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from ampdoctor.record.accumulators import look, sums
from ampdoctor.record.accumulators.follower import Accumulators
from ampdoctor.record.accumulators.sums import HalfSum, Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.twin.operations import Operation
    from ampdoctor.trace.schema import AccumulatorRow
    from tests.record.recording import Recording

STEPS = 7


def _train(recording: Recording, after: Callable[[nn.Linear, torch.Tensor], object]) -> list[AccumulatorRow]:
    """Record a training in FP32 that calls `after` once its step is over; return what was seen, last step first."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with recording.start(model=model, optimizer=optimizer):
        for _ in range(STEPS):
            loss = model(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after(model, loss)
    return sorted(recording.run.accumulators, key=lambda row: -row.step)


def _halves(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().bfloat16() for p in model.parameters()]


def _lerp(averages: list[torch.Tensor], model: nn.Module) -> None:
    for average, p in zip(averages, _halves(model), strict=True):
        average.lerp_(p, 0.001)


def _in_place(averages: list[torch.Tensor], model: nn.Module) -> None:
    for average, p in zip(averages, _halves(model), strict=True):
        average.mul_(0.999).add_(p, alpha=0.001)


def _foreach(averages: list[torch.Tensor], model: nn.Module) -> None:
    torch._foreach_mul_(averages, 0.999)
    torch._foreach_add_(averages, _halves(model), alpha=0.001)


def _foreach_lerp(averages: list[torch.Tensor], model: nn.Module) -> None:
    torch._foreach_lerp_(averages, _halves(model), 0.001)


def _made_anew(averages: list[torch.Tensor], model: nn.Module) -> None:
    for n, p in enumerate(_halves(model)):
        averages[n] = 0.001 * p + 0.999 * averages[n]


def _copied(averages: list[torch.Tensor], model: nn.Module) -> None:
    with torch.no_grad():
        for average, p in zip(averages, model.parameters(), strict=True):
            average.copy_(0.999 * average.float() + 0.001 * p)


def _out(averages: list[torch.Tensor], model: nn.Module) -> None:
    for average, p in zip(averages, _halves(model), strict=True):
        torch.mul(average, 0.999, out=average)
        torch.add(average, p, alpha=0.001, out=average)


def _difference(averages: list[torch.Tensor], model: nn.Module) -> None:
    for average, p in zip(averages, _halves(model), strict=True):
        average.add_((p - average) * 0.001)


UPDATES = [_lerp, _in_place, _foreach, _foreach_lerp, _made_anew, _copied, _difference, _out]


@pytest.mark.parametrize("update", UPDATES)
def test_an_average_of_weights_is_known_however_it_is_written(
    recording: Recording, update: Callable[[list[torch.Tensor], nn.Module], None]
) -> None:
    averages: list[torch.Tensor] = []

    def after(model: nn.Linear, _: object) -> None:
        if not averages:
            averages.extend(_halves(model))
        update(averages, model)

    last = _train(recording, after)[0]
    assert (last.kind, last.added, last.dtype, last.calls, last.numel) == ("average", "weight", "bfloat16", 2, 36)
    # A thousandth of the way is nothing in BF16.
    assert last.absorbed == last.nonzero > 0
    assert last.energy_absorbed == 1.0
    assert last.rate in (None, pytest.approx(0.001))
    assert last.lasting


def test_an_averaged_model_is_seen_in_torch_s_own_code(recording: Recording) -> None:
    found: list[Any] = []
    function = torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)

    def after(model: nn.Linear, _: object) -> None:
        half = copy.deepcopy(model).bfloat16()
        if not found:
            found.append(torch.optim.swa_utils.AveragedModel(half, multi_avg_fn=function))
        found[0].update_parameters(half)

    last = _train(recording, after)[0]
    assert (last.kind, last.op, last.numel) == ("average", "lerp", 36)
    assert last.file is not None
    assert last.file.endswith("test_accumulators.py")


@pytest.mark.parametrize("in_place", [True, False])
def test_a_running_loss_is_a_sum(recording: Recording, in_place: bool) -> None:
    total = [torch.full((), 4096.0, dtype=torch.bfloat16)]

    def after(_: object, loss: torch.Tensor) -> None:
        if in_place:
            total[0] += loss.detach()
        else:
            total[0] = total[0] + loss.detach().bfloat16()

    last = _train(recording, after)[0]
    assert (last.kind, last.added, last.numel, last.absorbed) == ("sum", None, 1, 1)
    assert last.absmax == 4096.0


def test_a_kahan_sum_is_said_to_be_one(recording: Recording) -> None:
    total, lost = [torch.zeros((), dtype=torch.bfloat16)], [torch.zeros((), dtype=torch.bfloat16)]

    def after(_: object, loss: torch.Tensor) -> None:
        value = loss.detach().bfloat16() - lost[0]
        new = total[0] + value
        lost[0] = (new - total[0]) - value
        total[0] = new

    rows = [row for row in _train(recording, after) if row.kind == "sum"]
    assert rows
    assert all(row.compensated for row in rows)


def test_gradients_added_by_hand_are_known(recording: Recording) -> None:
    sums: list[torch.Tensor] = []

    def after(model: nn.Linear, _: object) -> None:
        if not sums:
            sums.extend(torch.zeros_like(p, dtype=torch.bfloat16) for p in model.parameters())
        for total, p in zip(sums, model.parameters(), strict=True):
            assert p.grad is not None
            total.add_(p.grad)

    last = _train(recording, after)[0]
    assert (last.kind, last.added, last.calls) == ("sum", "gradient", 2)


def test_what_is_no_total_is_not_told(recording: Recording) -> None:
    wide = torch.zeros(8)

    def after(model: nn.Linear, loss: torch.Tensor) -> None:
        batch = torch.randn(16, 8).bfloat16()
        batch += 1e-4 * torch.randn(16, 8).bfloat16()  # made in this step
        noisy = batch + 1e-4
        wide.add_(noisy.float().sum(0))  # not in half
        with torch.no_grad():
            model.weight += 0.0 * loss  # a weight

    assert _train(recording, after) == []
    watched = [s.step for s in recording.run.steps if s.totals_watched]
    assert watched in ([3, 6], [1, 3, 6])


def test_a_total_in_fp32_that_a_half_one_is_added_to_is_none(recording: Recording) -> None:
    wide, half = torch.zeros(8), torch.ones(8, dtype=torch.bfloat16)
    assert _train(recording, lambda *_: torch.add(half, wide, out=wide)) == []
    assert torch.equal(wide, torch.full((8,), float(STEPS)))


def test_values_are_taken_of_totals_that_are_kept_only(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    taken: list[HalfSum] = []
    values = HalfSum.values

    def noted(self: HalfSum) -> Values | None:
        taken.append(self)
        return values(self)

    monkeypatch.setattr(HalfSum, "values", noted)
    total = torch.zeros(8, dtype=torch.bfloat16)

    def after(*_: object) -> None:
        batch = torch.ones(8).bfloat16()
        batch += batch
        total.add_(batch + 1)

    assert {row.calls for row in _train(recording, after)} == {1}
    assert {one.total.data_ptr() for one in taken} == {total.data_ptr()}


def test_of_a_large_total_a_part_is_looked_at(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "SAMPLE", 100)
    total, rows = torch.full((64, 48), 256.0, dtype=torch.bfloat16), torch.ones(64, 1, dtype=torch.bfloat16)
    rows[1::2] = 0.0
    last = _train(recording, lambda *_: total.add_(rows))[0]
    assert 0 < last.numel <= 100
    assert 0 < last.absorbed == last.nonzero < last.numel
    assert last.increment == pytest.approx((last.nonzero / last.numel) ** 0.5)


def test_where_there_is_no_room_nothing_is_taken(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "fits", lambda _: False)
    large, small = (torch.zeros(n, dtype=torch.bfloat16) for n in (1 << 15, 1 << 3))
    found = _train(recording, lambda *_: (large.mul_(0.5).add_(1.0), small.add_(1.0)))
    assert {row.numel for row in found} == {1 << 3}


def test_looking_ends_in_the_middle_of_a_step_that_it_takes_long_in(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "_STEP_SECONDS", 0.0)
    seen: list[Operation] = []
    before = Accumulators._outside

    def counted(self: Accumulators, operation: Operation, tensors: Any) -> Any:
        seen.append(operation)
        return before(self, operation, tensors)

    monkeypatch.setattr(Accumulators, "_outside", counted)
    total = torch.zeros(8, dtype=torch.bfloat16)

    rows = _train(recording, lambda *_: [total.add_(1.0) for _ in range(100)])
    assert sum(row.calls for row in rows) < 10
    assert 0 < len(seen) < 10
    assert torch.equal(total, torch.full((8,), 256.0, dtype=torch.bfloat16))  # where BF16 stands still


def test_nobody_looks_where_no_second_opinion_is_wanted(recording: Recording) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = torch.zeros((), dtype=torch.bfloat16)
    with recording.start(model=model, optimizer=optimizer, prove=False):
        for _ in range(STEPS):
            loss = model(torch.randn(4, 2)).sum()
            loss.backward()
            optimizer.step()
            total += loss.detach()
    assert recording.run.accumulators == []
    assert not any(s.totals_watched for s in recording.run.steps)
