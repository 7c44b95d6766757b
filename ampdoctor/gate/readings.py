"""What a run comes to in each metric, as a whole and by site."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.whatif import Share, recorded_step, what_if
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.analysis.ranks import differing_ranks
from ampdoctor.analysis.storage.lost_updates import lost_steps
from ampdoctor.analysis.twins.measured import measured_steps
from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Grade
from ampdoctor.formats import HALF_DTYPES
from ampdoctor.gate.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

WHOLE = ""
"""The site of a reading of the run as a whole."""


@dataclass(frozen=True)
class Reading:
    """What one run comes to in one metric.

    Attributes:
        metric: name of the metric.
        value: the number.
        grade: how it was obtained.
        site: where, `module.slot`; of memory the component; empty for the run as a whole.
    """

    metric: str
    value: float
    grade: Grade = Grade.OBSERVED
    site: str = WHOLE


def read_metrics(run: Run) -> list[Reading]:
    """Return all readings that `run` has enough recorded for. What was not measured is not there, and never 0.

    Of several ranks each reading is the worst of the first and of one for each kind of difference, which are those that
    rules judge.
    """
    worst: dict[tuple[str, str], Reading] = {}
    for each in (run, *(run.of_rank(rank) for rank in differing_ranks(run))):
        for reading in _of_rank(each):
            known = worst.setdefault((reading.metric, reading.site), reading)
            if METRICS[reading.metric].is_worse(reading.value, known.value):
                worst[reading.metric, reading.site] = reading
    return list(worst.values())


def _of_rank(run: Run) -> Iterator[Reading]:
    found = (reading for name, read in _READERS.items() for reading in read(name, run))
    return (reading for reading in found if math.isfinite(reading.value))


def _flushed(name: str, run: Run) -> Iterator[Reading]:
    try:
        answer = what_if(recorded_step(run))
    except AmpDoctorError:
        return
    for site, share in ((WHOLE, answer.total), *((w.site, w.flushed) for w in answer.weights)):
        reading = _graded(name, site, share)
        if reading is not None:
            yield reading


def _graded(name: str, site: str, share: Share) -> Reading | None:
    if share.measured is not None:
        return Reading(name, share.measured, Grade.MEASURED, site)
    return None if share.estimated is None else Reading(name, share.estimated, Grade.ESTIMATED, site)


def _subnormal(name: str, run: Run) -> Iterator[Reading]:
    counts: dict[str, list[int]] = {}
    for row in run.tensors("weight_grad", "grad_output", dtypes=HALF_DTYPES):
        for site in (WHOLE, row.site):
            of_site = counts.setdefault(site, [0, 0])
            of_site[0] += row.subnormal
            of_site[1] += row.numel
    for site, (subnormal, numel) in counts.items():
        if numel:
            yield Reading(name, subnormal / numel, site=site)


def _skipped(name: str, run: Run) -> Iterator[Reading]:
    known = [step.applied for step in run.steps if step.applied is not None]
    if known:
        yield Reading(name, known.count(False) / len(known))


def _min_scale(name: str, run: Run) -> Iterator[Reading]:
    scales = [
        s.loss_scale for s in run.steps if s.applied is not False and s.loss_scale and math.isfinite(s.loss_scale)
    ]
    if scales:
        yield Reading(name, math.log2(min(scales)))


def _nonfinite(name: str, run: Run) -> Iterator[Reading]:
    applied = {step.step for step in run.steps if step.applied is not False}
    rows = [row for row in run.tensors() if row.step in applied]
    if rows:
        yield Reading(name, sum(row.nonfinite > 0 for row in rows) / len(rows))


def _nonfinite_loss(name: str, run: Run) -> Iterator[Reading]:
    losses = [step.loss for step in run.steps if step.loss is not None]
    if losses:
        yield Reading(name, sum(not math.isfinite(loss) for loss in losses) / len(losses))


def _lost_updates(name: str, run: Run) -> Iterator[Reading]:
    steps = lost_steps(run)
    expected = sum(step.expected for step in steps)
    if expected:
        yield Reading(name, sum(step.unchanged for step in steps) / expected)


def _cosine(name: str, run: Run) -> Iterator[Reading]:
    own = [_turned(step.run.gradient) for step in measured_steps(run) if step.run is not None]
    known = [cosine for cosine in own if cosine is not None]
    if known:
        yield Reading(name, min(known), Grade.MEASURED)


def _turned(gradient: TwinRow) -> float | None:
    """Return the cosine; a gradient of which nothing is left has none, and is as far from FP32's as can be."""
    lost = gradient.cosine is None and gradient.norm_ratio == 0.0 and gradient.nonzero
    return 0.0 if lost else gradient.cosine


def _memory(name: str, run: Run) -> Iterator[Reading]:
    kept = ledgers(run)
    if not kept:
        return
    ledger = kept[max(kept)]
    phase = "peak" if "peak" in ledger.phases else (ledger.phases or [""])[-1]
    if not phase:
        return
    yield Reading(name, float(ledger.total(phase)), Grade.MEASURED)
    for component, size in ledger.components(phase).items():
        yield Reading(name, float(size), Grade.MEASURED, component)


def _step_ms(name: str, run: Run) -> Iterator[Reading]:
    plain = [step.wall_ms for step in run.steps if not step.examined]
    if plain:
        yield Reading(name, median(plain), Grade.MEASURED)


_READERS: dict[str, Callable[[str, Run], Iterator[Reading]]] = {
    "flushed": _flushed,
    "subnormal": _subnormal,
    "skipped": _skipped,
    "min_scale": _min_scale,
    "nonfinite": _nonfinite,
    "nonfinite_loss": _nonfinite_loss,
    "lost_updates": _lost_updates,
    "cosine": _cosine,
    "memory": _memory,
    "step_ms": _step_ms,
}
"""How each metric is read; a test holds them to METRICS."""
