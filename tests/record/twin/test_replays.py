"""Failed steps of a recorded run: replayed at each onset, with their rows, and without a trace in the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.engine import diagnose

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, TwinStepRow
    from tests.record.recording import Recording

STEPS = 30
HAND_MADE = 2.0**10


@dataclass(frozen=True)
class Loop:
    """A training loop and the steps on which something goes wrong in it.

    Attributes:
        loud: steps whose inputs are too large for FP16.
        steep: steps whose loss is 1e5 times as large.
        scaler: use a GradScaler; else a scale by hand, which on steep steps is 2^14 times as large.
    """

    loud: frozenset[int] = frozenset()
    steep: frozenset[int] = frozenset()
    scaler: bool = True

    def run(self) -> list[torch.Tensor]:
        """Train and return all that is left of it."""
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(32, 4)
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        losses = []
        for step in range(STEPS):
            x, target = torch.randn(8, 16), torch.randint(0, 4, (8,))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(x * 3e5 if step in self.loud else x), target)
            if self.scaler:
                scaler.scale(loss * 1e5 if step in self.steep else loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                self._by_hand(loss, step, optimizer)
            losses.append(loss.detach())
        return [*losses, *model.state_dict().values(), torch.get_rng_state()]

    def _by_hand(self, loss: torch.Tensor, step: int, optimizer: torch.optim.Optimizer) -> None:
        scale = 2.0**24 if step in self.steep else HAND_MADE
        (loss * scale).backward()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= scale
        optimizer.step()


def record(recording: Recording, loop: Loop, **settings: Any) -> Run:
    """Record the loop, and see that it came out as without."""
    alone = loop.run()
    with recording.start(**settings):
        recorded = loop.run()
    assert all(map(same, alone, recorded))
    return recording.run


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) if a.is_floating_point() else torch.equal(a, b)


def replays(run: Run) -> list[TwinStepRow]:
    return [row for row in run.twin_steps if row.kind == "replay"]


def born(run: Run) -> list[OpRow]:
    return [row for row in run.ops if row.source == "replay" and row.born]


def whole(run: Run, counterfactual: str, step: int) -> Any:
    """Return the row of the whole gradient."""
    (row,) = [t for t in run.twins if (t.role, t.counterfactual, t.step) == ("gradient", counterfactual, step)]
    return row


def test_a_forward_that_overflows_once_is_found_where_it_is_made(recording: Recording) -> None:
    run = record(recording, Loop(loud=frozenset({20})))
    assert not run.steps[20].examined
    (row,) = replays(run)
    assert (row.step, row.reason, row.confirmed, row.declined) == (20, "skip", True, None)
    first = min(born(run), key=lambda op: op.first_born or 0)
    assert (first.module, first.op, first.direction) == ("0", "aten._to_copy", "forward")
    assert first.file is not None
    assert first.file.endswith("test_replays.py")
    assert first.born_fp32 == 0
    # The statistics of the BatchNorm behind it keep the infinity, which is worse than one skipped step.
    worst = diagnose(run).findings[0]
    assert worst.name == "buffer-poisoned-by-overflow"
    assert "activation-overflow" in {c.name for c in worst.consequences}
    # The gradients that came back were NaN before they reached the model: nothing is to be said of them.
    assert not [t for t in run.twins if t.step == 20]


def test_a_backward_that_overflows_once_is_finite_in_fp32_and_bf16(recording: Recording) -> None:
    run = record(recording, Loop(steep=frozenset({20})))
    (row,) = replays(run)
    assert row.confirmed
    assert all(op.direction == "backward" and op.born_fp32 == 0 for op in born(run))
    ours, fp32, bf16 = (whole(run, name, 20) for name in ("run", "fp32", "bf16"))
    assert ours.overflowed == ours.numel
    assert ours.loss_scale == HAND_MADE
    assert (fp32.nonfinite, bf16.nonfinite) == (0, 0)
    assert bf16.cosine > 0.999


def test_a_hand_made_scale_that_overflows_once_is_told(recording: Recording) -> None:
    run = record(recording, Loop(steep=frozenset({20}), scaler=False))
    (row,) = replays(run)
    assert (row.step, row.reason, row.confirmed) == (20, "nonfinite-gradient", True)
    assert whole(run, "run", 20).loss_scale == 2.0**24
    lower = [t for t in run.twins if t.step == 20 and t.role == "gradient" and t.loss_scale == 2.0**16]
    assert lower[0].nonfinite == 0
    assert diagnose(run).findings[0].name == "loss-scale-too-large"


def test_only_onsets_are_replayed_by_default(recording: Recording) -> None:
    run = record(recording, Loop(steep=frozenset({3, 6, 9})))
    assert [row.step for row in replays(run)] == [3]


def test_every_failure_is_replayed_on_demand(recording: Recording) -> None:
    run = record(recording, Loop(steep=frozenset({3, 6, 9})), prove=True)
    assert [row.step for row in replays(run)] == [3, 6, 9]
    assert all(row.confirmed for row in replays(run))


@pytest.mark.parametrize("loop", [Loop(steep=frozenset({20})), Loop(loud=frozenset({4}))])
def test_no_second_opinion_where_none_is_wanted(recording: Recording, loop: Loop) -> None:
    run = record(recording, loop, prove=False)
    assert not run.twin_steps
    assert not run.twins
    assert not run.ops


CALLS = 0


class Counting(nn.Module):
    """What it does cannot be taken back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS  # noqa: PLW0603
        CALLS += 1
        return x * 1.0


@pytest.mark.parametrize(("prove", "calls"), [(None, 4), (True, 5)])
def test_what_cannot_be_taken_back_is_done_again_on_demand_only(
    recording: Recording, prove: bool | None, calls: int
) -> None:
    global CALLS  # noqa: PLW0603
    CALLS = 0
    model = nn.Sequential(nn.Linear(4, 4), Counting())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    with recording.start(prove=prove):
        for step in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(2, 4)).float().square().mean()
            scaler.scale(loss * 1e9 if step == 3 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert calls == CALLS
    (row,) = replays(recording.run)
    assert (row.declined is None) == bool(prove)
    if not prove:
        assert "a global is assigned" in (row.declined or "")
        assert "--prove" in (row.declined or "")
