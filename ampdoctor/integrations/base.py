"""What integrations have in common: what they declare, and the recordings of a callback."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.session import reason_of, watch
from ampdoctor.trace.meeting import is_rank

if TYPE_CHECKING:
    from ampdoctor.record.recorder import Recorder
    from ampdoctor.trace.run import Run

_log = logging.getLogger("ampdoctor")


@dataclass(frozen=True)
class Provides:
    """What three steps in FP16 hold at least, recorded through an integration.

    Attributes:
        columns: `table` or `table.column`, as in a rule's `needs`, with a value in some row.
        calls: kinds of calls, as in `calls.call`.
        events: events of the scaler, as in `scaler.event`.
    """

    columns: frozenset[str]
    calls: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()

    def missing(self, run: Run) -> list[str]:
        """Return what is declared and not in `run`."""
        calls, events = {call.call for call in run.calls}, {event.event for event in run.scaler}
        lacking = [f"calls.call = {name}" for name in sorted(self.calls - calls)]
        lacking += [f"scaler.event = {name}" for name in sorted(self.events - events)]
        return run.missing(sorted(self.columns)) + lacking


WHOLE_STEP = Provides(
    columns=frozenset(
        {
            "steps.loss", "steps.loss_scale", "steps.applied", "steps.lr", "tensors.autocast", "tensors.loss_scale",
            "tensors.cast_to", "modules.optimizer", "optimizers.lr", "scaler.scale", "scaler.scale_after",
            "calls.file", "calls.optimizers", "calls.scaled",
        }
    ),
    calls=frozenset({"scale", "backward", "scaler_step", "update", "zero_grad"}),
    events=frozenset({"seen", "step", "hold"}),
)  # fmt: skip
"""Everything that a plain loop with GradScaler has."""


def is_recorded(*, main: bool) -> bool:
    """Whether this process is to be recorded: the main one, and of those that a launcher has started all."""
    return main or is_rank()


class Recordings:
    """The recordings of a callback: one at a time, from where a training begins to where it ends.

    Args:
        settings: those of `ampdoctor.watch`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._recorder: Recorder | None = None
        self._begun = 0

    @property
    def recorder(self) -> Recorder | None:
        """The recorder at work; None between trainings, and where this process is not recorded."""
        return self._recorder

    def begin(self, model: Any = None, optimizer: Any = None, scaler: Any = None) -> None:
        """Record from here on.

        What is wrong with the settings is raised where the first training is about to begin, as `ampdoctor.watch`
        would. Later ones go on without a recording: hours may have gone into them.
        """
        self.end()
        self._begun += 1
        settings = self.settings | {"out": self._place()}
        try:
            self._recorder = watch(model, optimizer=optimizer, scaler=scaler, **settings).start()
        except Exception as error:
            if self._begun == 1:
                raise
            _log.warning("ampdoctor does not record this training: %s", reason_of(error))

    def end(self, error: BaseException | None = None) -> None:
        """The training has ended, with `error` if that has ended it; does nothing where none is recorded."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(None if error is None else type(error), error, None)

    def _place(self) -> Path | None:
        """Return the run folder of this training: `out`, then `out-2` and so on."""
        out = self.settings.get("out")
        if out is None or self._begun == 1:
            return None if out is None else Path(out)
        return Path(f"{out}-{self._begun}")
