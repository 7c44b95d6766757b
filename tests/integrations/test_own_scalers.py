"""Loss scales that DeepSpeed, Megatron and Apex keep for themselves are recorded as those of GradScaler are."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.record.watch.own_scaler_kinds import classes
from tests.integrations import own_scalers
from tests.integrations.own_scalers import (
    ApexLoop,
    ApexScaler,
    ChainedOptimizer,
    FusedOptimizer,
    MegatronOptimizer,
    ZeroOptimizer,
)
from tests.integrations.tiny import Tiny, batches
from tests.record.training import seed

if TYPE_CHECKING:
    from tests.record.recording import Recording

KINDS = [ZeroOptimizer, FusedOptimizer, MegatronOptimizer, ChainedOptimizer, ApexLoop]

TOO_LARGE = 2.0**20


def scale_of(made: Any) -> float:
    return float(made.grad_scaler.scale if hasattr(made, "grad_scaler") else made.loss_scale)


def trained(kind: Any, scale: float = TOO_LARGE, recorder: Any = None, **settings: Any) -> tuple[Tiny, list[Any]]:
    """Train six steps under FP16 autocast; returns per step the scale, and whether it was skipped."""
    seed()
    model = Tiny()
    made = kind(torch.optim.AdamW(model.parameters(), lr=1e-2), scale, **settings)
    steps = []
    with recorder or nullcontext():
        for batch in [*batches(), *batches()]:
            before, weights = scale_of(made), model.last.weight.detach().clone()
            with torch.autocast("cpu", torch.float16):
                loss = model(**batch)["loss"]
            made.backward(loss)
            made.step()
            steps.append((before, torch.equal(model.last.weight, weights)))
    return model, steps


@pytest.mark.parametrize("kind", KINDS)
def test_scales_and_skips_are_those_of_the_framework(kind: Any, recording: Recording) -> None:
    model, steps = trained(kind, recorder=recording.start(every=1, prove=False))
    run = recording.run
    assert {skipped for _, skipped in steps} == {True, False}
    assert [(s.loss_scale, not s.applied) for s in run.steps] == steps
    assert [s.micro_batches for s in run.steps] == [1] * len(steps)
    assert [s.loss for s in run.steps] == pytest.approx([float(loss) for loss in model.losses])
    assert {c.scaled for c in recording.calls("backward")} == {"all"}
    for step, (scale, _) in enumerate(steps):
        assert {t.loss_scale for t in recording.tensors("grad_output", step=step)} == {scale}


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_those_of_a_scaler(kind: Any, recording: Recording) -> None:
    _, steps = trained(kind, recorder=recording.start(prove=False))
    (seen,) = recording.events(event="seen")
    assert (seen.scale, seen.enabled, seen.growth_factor, seen.backoff_factor) == (TOO_LARGE, True, 2.0, 0.5)
    assert [e.scale for e in recording.events(event="skip")] == [scale for scale, skipped in steps if skipped]
    assert [(e.scale, e.scale_after) for e in recording.events(event="backoff")] == [
        (scale, scale / 2) for scale, skipped in steps if skipped
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_is_the_same(kind: Any, recording: Recording) -> None:
    alone, _ = trained(kind)
    watched, _ = trained(kind, recorder=recording.start(every=1))
    assert watched.outcome().differences(alone.outcome()) == []


def test_a_step_of_the_framework_is_one_call(recording: Recording) -> None:
    trained(ZeroOptimizer, scale=64.0, recorder=recording.start())
    kinds = [c.call for c in recording.calls("backward", "scaler_step", "optimizer_step", "update", step=1)]
    assert kinds == ["backward", "scaler_step", "update"]


@pytest.mark.parametrize("kind", [ZeroOptimizer, MegatronOptimizer])
def test_a_scale_of_one_that_never_changes_is_none(kind: Any, recording: Recording) -> None:
    trained(kind, scale=1.0, recorder=recording.start(), dynamic=False)
    assert not recording.run.scaler
    assert [(s.loss_scale, s.applied) for s in recording.run.steps] == [(None, True)] * 6


@pytest.mark.parametrize("kind", [ZeroOptimizer, MegatronOptimizer])
def test_a_scale_that_never_changes_is_told(kind: Any, recording: Recording) -> None:
    trained(kind, scale=64.0, recorder=recording.start(), dynamic=False)
    (seen,) = recording.events(event="seen")
    assert (seen.scale, seen.growth_factor, seen.backoff_factor) == (64.0, 1.0, 1.0)
    assert {s.loss_scale for s in recording.run.steps} == {64.0}


def test_what_only_looks_like_one_is_left_alone(recording: Recording) -> None:
    unfinished = object.__new__(ZeroOptimizer)
    _, steps = trained(MegatronOptimizer, recorder=recording.start())
    assert not vars(unfinished)
    assert [(s.loss_scale, not s.applied) for s in recording.run.steps] == steps


def test_every_method_is_put_back(recording: Recording) -> None:
    before = {made: vars(made).copy() for made in vars(own_scalers).values() if isinstance(made, type)}
    for kind in KINDS:
        with recording.start():
            trained(kind)
        recording.folder = recording.folder.with_name(kind.__name__)
    assert all(vars(made) == kept for made, kept in before.items())


def test_nothing_of_torchs_is_taken_for_a_framework() -> None:
    ours = {ZeroOptimizer, FusedOptimizer, MegatronOptimizer, ChainedOptimizer, ApexScaler}
    assert {made for made, _ in classes() if not made.__module__.startswith(("deepspeed", "megatron", "apex"))} == ours
