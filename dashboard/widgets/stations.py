"""What each station of the pipeline has to say of one step, and what was found there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.finding import Finding, Severity
from ampdoctor_dashboard.data.stations import Station, holds_on
from ampdoctor_dashboard.widgets import backward_stations, forward_stations
from ampdoctor_dashboard.widgets.station import BAD, WARN, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor_dashboard.data.pipeline import StepFacts
    from ampdoctor_dashboard.words import Words


def station_of(
    station: Station, facts: StepFacts, found: Sequence[Finding], words: Words, told: Callable[[str], str] = str
) -> Shown:
    """Return what a station shows; findings there that were seen on this step light it."""
    shown = _DESCRIBED[station](facts, words)
    here = [finding for finding in found if holds_on(finding, facts.step)]
    worst = min((finding.severity for finding in here), key=lambda severity: severity.rank, default=None)
    if worst in {Severity.ERROR, Severity.WARNING}:
        shown.health = BAD if worst is Severity.ERROR else WARN
        shown.says = told(next(finding.summary for finding in here if finding.severity is worst))
    return shown


_DESCRIBED: dict[Station, Callable[[StepFacts, Words], Shown]] = {
    Station.WEIGHTS: forward_stations.weights,
    Station.CAST: forward_stations.cast,
    Station.FORWARD: forward_stations.forward,
    Station.LOSS: forward_stations.loss,
    Station.SCALE: backward_stations.scale,
    Station.BACKWARD: backward_stations.backward,
    Station.UNSCALE: backward_stations.unscale,
    Station.CLIP: backward_stations.clip,
    Station.CHECK: backward_stations.check,
    Station.STEP: backward_stations.step,
    Station.UPDATE: backward_stations.update,
}
