"""Those who look on at a step's operations beside second opinions: one at a time, for each lays a mode of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.accumulators.look import AccumulatorLook
from ampdoctor.record.ledger.look import LedgerLook
from ampdoctor.record.roundings.watch import RoundingWatch

if TYPE_CHECKING:
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.state import State
    from ampdoctor.record.twin.place import Places


class Looks:
    """Begins and ends them with the steps.

    Args:
        state: what the parts of the recorder share.
        wanted: False where the user wants no second opinion of any kind.

    Attributes:
        roundings: what half precision rounds away, of chosen values.
        accumulators: totals that code keeps in half.
        ledgers: where a step's memory and time go.
    """

    def __init__(self, state: State, *, wanted: bool) -> None:
        self.roundings = RoundingWatch(state)
        self.accumulators = AccumulatorLook(state, wanted=wanted)
        self.ledgers = LedgerLook(state, wanted=wanted)

    @property
    def places(self) -> Places | None:
        """Whom to tell of modules that begin and end."""
        return self.roundings.places or self.ledgers.places

    def begin(self, log: StepLog, *, busy: bool) -> bool:
        """The step of `log` begins; returns whether anybody looks on, `busy` being somebody else."""
        self.roundings.begin(log, busy=busy)
        busy = busy or self.roundings.places is not None
        self.accumulators.begin(log, busy=busy)
        busy = busy or self.accumulators.looking
        self.ledgers.begin(log, busy=busy)
        return busy or self.ledgers.places is not None

    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        self.accumulators.suspend()
        self.ledgers.optimizer_begins()

    def optimizer_ended(self) -> None:
        """It has stepped."""
        self.ledgers.optimizer_ended()
        self.accumulators.resume()

    def end(self, wall_seconds: float = 0.0) -> None:
        """The step is over."""
        self.roundings.end()
        self.accumulators.end(wall_seconds)
        self.ledgers.end(wall_seconds)

    def abandon(self) -> None:
        """The recorder stops, perhaps in the middle of a step."""
        self.roundings.abandon()
        self.accumulators.remove()
        self.ledgers.remove()
