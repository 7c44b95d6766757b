"""Places where something was rounded, added up over the calls of a step, and their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ampdoctor.record.callsite import full_call_site, shortened
from ampdoctor.trace.schema import RoundingRow

if TYPE_CHECKING:
    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.roundings.scaled import Lost
    from ampdoctor.record.roundings.whole import Changed

MOST_PLACES = 256
"""Places told of in a step; a loop over lines of generated code repeats itself."""


@dataclass
class Totals:
    """What the calls of one place come to."""

    seq: int
    calls: int = 0
    numel: int = 0
    largest: float = 0.0
    squares: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    energies: dict[str, float] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    even_steps: bool = False
    led_to: set[str] = field(default_factory=set)

    def add(self, numel: int, largest: float) -> None:
        """Add a call."""
        self.calls += 1
        self.numel += numel
        self.largest = max(self.largest, largest)

    def count(self, **counts: int) -> None:
        """Add counts of elements."""
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number


@dataclass(frozen=True)
class Spot:
    """What calls agree in that are added up."""

    kind: str
    module: str
    op: str
    dtype_in: str
    dtype_out: str
    source: CallSite


class RoundingRows:
    """The rows of one step."""

    def __init__(self) -> None:
        self._places: dict[Spot, Totals] = {}

    def at(self, order: int, kind: str, module: str | None, op: str, dtypes: tuple[str, str]) -> Totals | None:
        """Return where to add a call of the user's line at hand; None where there are too many places."""
        spot = Spot(kind, module or "", op, *dtypes, full_call_site())
        totals = self._places.get(spot)
        if totals is None and len(self._places) < MOST_PLACES:
            totals = self._places[spot] = Totals(order)
        return totals

    def integers(self, totals: Totals, found: Changed) -> None:
        """Add whole numbers of which rounding has changed some."""
        totals.add(found.numel, found.largest)
        totals.count(changed=found.changed, distinct=found.distinct, distinct_after=found.distinct_after)
        totals.even_steps |= found.even_steps

    def scaled(self, totals: Totals, numel: int, lost: Lost) -> None:
        """Add a cast to a narrow format."""
        totals.add(numel, lost.largest)
        totals.count(nonzero=lost.nonzero, flushed=lost.flushed, beyond=lost.beyond)
        totals.squares += lost.squares
        lost_squares = {"flushed": lost.squares_flushed, "beyond": lost.squares_beyond}
        for name, squares in lost_squares.items():
            totals.energies[name] = totals.energies.get(name, 0.0) + squares
            share = squares / lost.squares if lost.squares else 0.0
            totals.worst[name] = max(share, totals.worst.get(name, 0.0))

    def queue(self, log: StepLog, operations: int | None) -> None:
        """Queue all rows, and one that says how many operations were seen where the whole step was watched."""
        if operations is not None:
            watched = RoundingRow(
                step=log.step, seq=0, kind="watched", module="", op="", dtype_in="", dtype_out="",
                calls=operations, numel=0,
            )  # fmt: skip
            log.row("roundings", lambda _: watched)
        for spot, totals in self._places.items():
            row = _row(log.step, spot, totals)
            log.row("roundings", lambda _, row=row: row)  # type: ignore[misc]
        self._places = {}


def _row(step: int, spot: Spot, totals: Totals) -> RoundingRow:
    columns: dict[str, Any] = dict(totals.counts)
    if spot.kind == "integers":
        columns |= {"even_steps": totals.even_steps, "led_to": sorted(totals.led_to)}
    elif spot.kind == "phases":
        rms = (totals.squares / totals.numel) ** 0.5 if totals.numel else 0.0
        columns |= {"rms": rms, "led_to": sorted(totals.led_to)}
    elif spot.kind == "float8":
        columns |= {f"energy_{name}": share for name, share in totals.worst.items()}
    elif totals.squares:
        columns["rms"] = (totals.squares / totals.numel) ** 0.5 if totals.numel else 0.0
        columns |= {f"energy_{name}": e / totals.squares for name, e in totals.energies.items()}
    return RoundingRow(
        step=step, seq=totals.seq, kind=spot.kind, module=spot.module, op=spot.op, dtype_in=spot.dtype_in,
        dtype_out=spot.dtype_out, **shortened(spot.source)._asdict(), calls=totals.calls, numel=totals.numel,
        largest=totals.largest, **columns,
    )  # fmt: skip
