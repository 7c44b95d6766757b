"""Steps of optimizers with what happened to their gradients before, and what does not belong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.analysis.calls.resumed import resumed
from ampdoctor.analysis.calls.stepping import Taken, taken_steps
from ampdoctor.analysis.calls.window import crossed_steps, mixed_steps
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.trace.schema import CallRow


def _backward(run: RunBuilder, *reached: str, scaled: str = "all", **columns: object) -> RunBuilder:
    return run.call("backward", scaled=scaled, optimizers=list(reached or ("optimizer0",)), **columns)


def _kinds(calls: tuple[CallRow, ...]) -> list[str]:
    return [c.call for c in calls]


def _taken(run: RunBuilder) -> tuple[Taken, ...]:
    return taken_steps(run.build())


def test_a_step_has_the_calls_since_its_gradients_were_cleared() -> None:
    run = _backward(RunBuilder().step(loss_scale=8.0)).call("zero_grad", target="optimizer0")
    _backward(run).call("unscale", target="optimizer0").call("optimizer_step", target="optimizer0")
    (taken,) = _taken(run)
    assert _kinds(taken.calls) == ["zero_grad", "backward", "unscale"]
    assert len(taken.backwards) == 1
    assert (taken.scale, taken.scaler, taken.skipped, taken.repeats) == (8.0, None, None, None)


def test_a_step_through_a_scaler_knows_what_became_of_it() -> None:
    run = _backward(RunBuilder().step()).call("scaler_step", target="optimizer0")
    run.scaler("skip", optimizer="optimizer0", scale=4.0)
    (taken,) = _taken(run)
    assert (taken.scale, taken.scaler, taken.skipped) == (4.0, "scaler0", True)


def test_a_step_that_repeats_another() -> None:
    run = _backward(RunBuilder().step()).call("optimizer_step", target="optimizer0")
    run.call("optimizer_step", target="optimizer1")
    run.call("optimizer_step", target="optimizer0")
    run.call("zero_grad", target="optimizer0").call("optimizer_step", target="optimizer0")
    taken = [t for t in _taken(run) if t.optimizer == "optimizer0"]
    assert [t.repeats is not None for t in taken] == [False, True, False]


def test_gradients_cleared_by_hand_show_in_what_is_held() -> None:
    run = _backward(RunBuilder().step())
    _backward(run, holding=[], holding_nonfinite=[]).call("optimizer_step", target="optimizer0")
    (taken,) = _taken(run)
    assert len(taken.backwards) == 1


def test_a_call_that_failed_did_nothing() -> None:
    run = _backward(RunBuilder().step())
    run.call("scaler_step", target="optimizer0", error="RuntimeError: no")
    assert _taken(run) == ()


def _window(*calls: str, cleared: bool = False) -> RunBuilder:
    """One step of optimizer0; `other` is a step of optimizer1 with the same scaler."""
    run = RunBuilder().step()
    for call in calls:
        if call == "backward":
            _backward(run, "optimizer0", "optimizer1")
        elif call == "other":
            run.call("scaler_step", target="optimizer1")
            run.scaler("step", optimizer="optimizer1", scale=8.0)
        elif call == "update":
            run.call("update", target="scaler0")
            run.scaler("growth", scale=8.0, scale_after=16.0)
        else:
            run.call(call, target="optimizer0")
    run.call("scaler_step", target="optimizer0")
    return run.scaler("step", optimizer="optimizer0", scale=8.0)


@pytest.mark.parametrize(
    ("calls", "unscales"),
    [
        (("backward", "unscale", "update", "backward"), 1),
        (("backward", "unscale", "update", "backward", "unscale", "update", "backward"), 2),
        (("backward", "backward", "unscale"), 0),
        (("backward", "unscale", "zero_grad", "backward"), 0),
    ],
)
def test_unscaling_between_micro_batches(calls: tuple[str, ...], unscales: int) -> None:
    found = list(mixed_steps(_window(*calls).build()))
    assert [m.unscales for m in found if m.taken.optimizer == "optimizer0"] == [unscales] * bool(unscales)


@pytest.mark.parametrize(
    ("calls", "crossed"),
    [
        (("backward", "other", "update"), (False, 2.0)),
        (("backward", "unscale", "other", "update"), (True, 2.0)),
        (("backward", "other"), None),
        (("other", "update", "zero_grad", "backward"), None),
        (("backward", "other", "update", "zero_grad", "backward"), None),
    ],
)
def test_an_update_between_two_steps(calls: tuple[str, ...], crossed: tuple[bool, float] | None) -> None:
    found = [(c.unscaled, c.moved) for c in crossed_steps(_window(*calls).build())]
    assert found == ([crossed] if crossed else [])


def _resumed(entries: int | None, *, kind: str = "AdamW", **columns: object) -> int:
    run = RunBuilder().optimizer(kind, **columns)
    for loss in (*[4.0] * 6, *[1.0] * 6):
        run.step(loss=loss).call("scaler_step", target="optimizer0")
        run.scaler("step", optimizer="optimizer0", scale=8.0)
    run.step(loss=1.1).call("load_state", target="optimizer0", entries=entries)
    run.call("scaler_step", target="optimizer0")
    run.scaler("skip", scaler="scaler1", optimizer="optimizer0", scale=64.0)
    run.scaler("backoff", scaler="scaler1", scale=64.0, scale_after=32.0)
    return sum(len(r.backoffs) for r in resumed(run.build()))


def test_a_resume_is_told_from_a_fresh_start() -> None:
    assert _resumed(3) == 1
    assert _resumed(None) == 1
    assert _resumed(0, betas=[0.9, 0.999]) == 0
    assert _resumed(0, kind="SGD", momentum=0.9) == 0
    assert _resumed(0, kind="SGD", momentum=0.0) == 1
