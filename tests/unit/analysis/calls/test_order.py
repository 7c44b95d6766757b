"""What happened to an optimizer's gradients until its step through a scaler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.scaled_steps import ScaledStep, scaled_steps
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def _step(run: RunBuilder, optimizer: str = "optimizer0") -> RunBuilder:
    run.call("scaler_step", target=optimizer)
    return run.scaler("step", optimizer=optimizer, scale=1024.0)


def _backward(run: RunBuilder, *reached: str, line: int = 1, **columns: object) -> RunBuilder:
    optimizers = list(reached) or None
    return run.call("backward", file="train.py", line=line, optimizers=optimizers, **columns)


def _lines(step: ScaledStep) -> list[int | None]:
    return [c.line for c in step.backwards]


def _steps(run: RunBuilder) -> tuple[ScaledStep, ...]:
    built: Run = run.build()
    return scaled_steps(built)


def test_backward_passes_belong_to_the_optimizers_they_reach() -> None:
    run = RunBuilder().step()
    _backward(run, "optimizer0", line=1)
    _backward(run, "optimizer1", line=2)
    _backward(run, "optimizer0", "optimizer1", line=3)
    _step(_step(run), "optimizer1")
    assert [_lines(s) for s in _steps(run)] == [[1, 3], [2, 3]]
    assert _steps(run)[0].scale == 1024.0


def test_cleared_gradients_are_forgotten() -> None:
    run = RunBuilder().step()
    _backward(run, "optimizer0", line=1).call("zero_grad", target="optimizer1")
    _backward(run, "optimizer0", line=2).call("zero_grad", target="optimizer0")
    _step(_backward(run, "optimizer0", line=3))
    assert [_lines(s) for s in _steps(run)] == [[3]]


def test_each_backward_pass_is_judged_at_the_first_step_that_uses_it() -> None:
    run = RunBuilder()
    for line in (1, 2):
        _step(_backward(run.step(), "optimizer0", line=line))
    assert [_lines(s) for s in _steps(run)] == [[1], [2]]


def test_on_steps_that_were_not_examined_the_line_tells_what_is_reached() -> None:
    run = RunBuilder().step()
    _step(_backward(_backward(run, "optimizer0", line=1), "optimizer1", line=2))
    _step(_backward(_backward(run.step(examined=False), line=1), line=2))
    run.call("optimizer_step", target="optimizer1")
    assert [_lines(s) for s in _steps(run)] == [[1], [1]]


def test_the_only_optimizer_is_the_one_reached() -> None:
    run = RunBuilder().step(examined=False)
    assert [_lines(s) for s in _steps(_step(_backward(run, line=7)))] == [[7]]


def test_a_step_without_an_enabled_scaler_is_left_out() -> None:
    run = RunBuilder().step()
    _backward(run, "optimizer0").call("scaler_step", target="optimizer0")
    assert _steps(run) == ()


def test_clipping_after_unscale_is_left_out() -> None:
    run = RunBuilder().step().call("unscale", target="optimizer0")
    _step(run.call("clip_norm", target="optimizer0", limit=1.0))
    _step(run.step().call("clip_norm", target="optimizer0", limit=1.0))
    assert [len(s.clips) for s in _steps(run)] == [0, 1]


def test_unscale_of_another_optimizer_does_not_count() -> None:
    run = RunBuilder().step().call("unscale", target="optimizer1")
    _step(run.call("clip_norm", target="optimizer0", limit=1.0))
    assert [len(s.clips) for s in _steps(run)] == [1]


def test_a_clip_of_unknown_parameters_belongs_to_the_next_step() -> None:
    run = RunBuilder().step().call("clip_norm", limit=1.0)
    assert [len(s.clips) for s in _steps(_step(run))] == [1]
    unscaled = RunBuilder().step().call("unscale", target="optimizer0").call("clip_norm", limit=1.0)
    assert [len(s.clips) for s in _steps(_step(unscaled))] == [0]


def test_an_unscale_that_failed_did_not_unscale() -> None:
    run = RunBuilder().step().call("unscale", target="optimizer0", error="ValueError: no")
    _step(run.call("clip_norm", target="optimizer0", limit=1.0))
    assert [len(s.clips) for s in _steps(run)] == [1]


def test_the_source_is_file_and_line() -> None:
    calls = _backward(RunBuilder().step(), line=4).call("update").build().calls
    assert [source_of(c) for c in calls] == ["train.py:4", None]


def test_a_line_that_reaches_now_these_and_now_those_is_not_judged() -> None:
    run = RunBuilder().step()
    _step(_backward(_backward(run, "optimizer0"), "optimizer1"))
    _step(_backward(_backward(run.step(examined=False)), line=2))
    run.call("optimizer_step", target="optimizer1")
    assert [_lines(s) for s in _steps(run)] == [[1], []]


def test_a_clip_of_unknown_parameters_is_not_judged_where_there_are_two_optimizers() -> None:
    run = RunBuilder().step().call("clip_norm", limit=1.0)
    _step(run).call("optimizer_step", target="optimizer1")
    assert [len(s.clips) for s in _steps(run)] == [0]
