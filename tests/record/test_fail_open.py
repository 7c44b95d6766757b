"""An error of the recorder's own, anywhere, ends the recording and nothing else."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.record import (
    autograd_graph,
    backward,
    call_log,
    calls,
    log,
    modules,
    optimizer,
    recorder,
    tensor_log,
    tensor_rows,
)
from ampdoctor.record.alarms import Alarms
from ampdoctor.record.boundaries import StepBoundaries
from ampdoctor.record.run_folder import RunFolder
from ampdoctor.record.scaler import ScalerEvents
from ampdoctor.record.schedule import Schedule
from ampdoctor.record.sites import Sites
from ampdoctor.record.stats import table
from ampdoctor.record.transfer import Transfer
from ampdoctor.trace.info import read_info
from ampdoctor.trace.writer import TraceWriter
from tests.record.conftest import hooks_in_place
from tests.record.training import Training

if TYPE_CHECKING:
    from tests.record.recording import Recording

STEPS = 6

SEAMS: list[tuple[Any, str]] = [
    (table.StatisticsTable, "measure"),
    (table.StatisticsTable, "measure_all"),
    (tensor_log.TensorLog, "add"),
    (tensor_log.TensorLog, "add_all"),
    (tensor_log, "scaled_up"),
    (tensor_log.TensorLog, "known"),
    (tensor_rows.TensorRows, "batch"),
    (log.StepLog, "scalar"),
    (log.StepLog, "row"),
    (log.StepLog, "finish"),
    (log.StepLog, "depart"),
    (log, "Transfer"),
    (Transfer, "values"),
    (Transfer, "ready"),
    (Sites, "path"),
    (Sites, "parameter"),
    (Sites, "names"),
    (modules.ModuleHooks, "arm"),
    (modules.ModuleHooks, "_record_inputs"),
    (modules.ModuleHooks, "_record_outputs"),
    (modules.ModuleHooks, "_follow_gradient"),
    (modules.ModuleHooks, "_describe"),
    (backward.BackwardReader, "read"),
    (backward.BackwardReader, "take_leaves"),
    (backward, "nodes"),
    (backward, "scaled_share"),
    (backward, "hand_factors"),
    (backward, "site_below"),
    (autograd_graph, "note"),
    (call_log, "call_site"),
    (calls, "describe"),
    (call_log, "CallRow"),
    (optimizer.OptimizerNames, "name"),
    (optimizer.OptimizerNames, "owners"),
    (optimizer.WeightExaminer, "gradients"),
    (optimizer.WeightExaminer, "before_step"),
    (optimizer.WeightExaminer, "after_step"),
    (optimizer, "fits"),
    (optimizer, "live_instances"),
    (ScalerEvents, "name"),
    (ScalerEvents, "scaled"),
    (ScalerEvents, "unscaled"),
    (ScalerEvents, "holds_scaled"),
    (ScalerEvents, "step_begins"),
    (ScalerEvents, "step_ended"),
    (ScalerEvents, "updated"),
    (Schedule, "reason"),
    (Schedule, "account"),
    (Alarms, "check"),
    (StepBoundaries, "begins_anew"),
    (StepBoundaries, "ends"),
    (recorder, "step_row"),
    (recorder, "StepLog"),
    (RunFolder, "open"),
    (RunFolder, "write"),
    (RunFolder, "close"),
    (TraceWriter, "__init__"),
    (TraceWriter, "append"),
    (TraceWriter, "flush"),
    (TraceWriter, "close"),
]

AT_STOP = {"close"}
"""What fails once the hooks are off anyhow."""


class Broken:
    """Stands in for a function; raises from its n-th call on."""

    def __init__(self, original: Any, first: int, error: Exception) -> None:
        self.original, self.first, self.error = original, first, error
        self.calls = 0

    def as_function(self) -> Any:
        """Return a function, which in a class becomes a method as the original does."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls >= self.first:
                raise self.error
            return self.original(*args, **kwargs)

        return call


def _break(
    monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, first: int = 1, error: Exception | None = None
) -> Broken:
    broken = Broken(getattr(holder, name), first, error or RuntimeError("of ours"))
    monkeypatch.setattr(holder, name, broken.as_function())
    return broken


@pytest.fixture(scope="module")
def alone() -> Any:
    """The training without a recorder: FP16, scaled, clipped, some steps skipped."""
    return _training().run(STEPS)


def _training() -> Training:
    return Training(precision="fp16", clip=True, init_scale=2.0**18)


@pytest.mark.parametrize(("holder", "name"), SEAMS, ids=[f"{h.__name__}.{n}" for h, n in SEAMS])
@pytest.mark.parametrize("first", [1, 5])
def test_the_training_goes_on_as_if_nothing_had_happened(
    recording: Recording, alone: Any, holder: Any, name: str, first: int,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    before = hooks_in_place()
    broken = _break(monkeypatch, holder, name, first)
    # An error within a second opinion ends that alone.
    started = recording.start(every=1, strict=False, prove=False).start()
    outcome = _training().run(STEPS)
    if name not in AT_STOP and holder is not TraceWriter:  # whose thread's error is met by the next step, or the stop
        failed = broken.calls >= first
        assert (hooks_in_place() == before) == failed
    started.stop()

    assert outcome.differences(alone) == []
    assert broken.calls >= 1
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    if broken.calls < first:
        assert not warnings
        return
    assert [r.name for r in warnings] == ["ampdoctor"]
    assert "RuntimeError: of ours" in warnings[0].getMessage()
    if (holder, name) != (RunFolder, "open"):
        info = read_info(recording.folder)
        assert (info.status, info.degraded) == ("degraded", "RuntimeError: of ours")


@pytest.mark.parametrize("first", [2, 7, 13, 20, 30, 45, 60])
def test_it_may_fail_anywhere_between_forward_and_step(
    recording: Recording, alone: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _break(monkeypatch, table.StatisticsTable, "_block", first)
    with recording.start(every=1, strict=False):
        outcome = _training().run(STEPS)
    assert outcome.differences(alone) == []
    assert broken.calls == first
    assert recording.run.info.status == "degraded"


@pytest.mark.parametrize(("holder", "name"), SEAMS[::4], ids=[f"{h.__name__}.{n}" for h, n in SEAMS[::4]])
def test_strict_raises(recording: Recording, holder: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _break(monkeypatch, holder, name)
    with pytest.raises(RuntimeError, match="of ours"), recording.start(every=1, strict=True):
        _training().run(STEPS)
    assert broken.calls >= 1


@pytest.mark.usefixtures("written_at_once")
def test_what_was_flushed_before_the_failure_can_be_read(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    _break(monkeypatch, TraceWriter, "flush", 3, full)
    with recording.start(every=1, strict=False):
        _training().run(STEPS)
    assert [row.step for row in recording.run.steps] == [0, 1]
    assert recording.run.info.degraded == "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("callback", ["on_open", "on_close"])
def test_a_callback_may_fail(recording: Recording, alone: Any, callback: str, caplog: Any) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("of ours")

    settings: dict[str, Any] = {callback: fail}
    with recording.start(every=1, strict=False, **settings):
        outcome = _training().run(STEPS)
    assert outcome.differences(alone) == []
    assert len(caplog.records) == 1


def test_an_interrupt_is_never_swallowed(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table.StatisticsTable, "measure", interrupt)
    with pytest.raises(KeyboardInterrupt), recording.start(every=1, strict=False):
        _training().run(1)
    assert recording.run.info.status == "crashed"
    assert recording.run.info.exception == "KeyboardInterrupt"


def test_an_error_of_the_training_is_recorded_and_passes(recording: Recording) -> None:
    def fail() -> None:
        with recording.start(every=1):
            _training().run(1)
            raise ValueError("the user's")

    with pytest.raises(ValueError, match="the user's"):
        fail()
    info = recording.run.info
    assert (info.status, info.exception) == ("crashed", "ValueError: the user's")


def test_it_is_quiet_about_what_never_trained(recording: Recording) -> None:
    with recording.start(every=1):
        torch.zeros(3).sum()
    assert list(recording.folder.iterdir()) == []
