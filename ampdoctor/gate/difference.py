"""difference_of(one run, another) -> what changed between them, worst first. Nothing here fails anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ampdoctor.finding import Grade
from ampdoctor.gate.baseline import baseline_of, machine_of
from ampdoctor.gate.checks import check
from ampdoctor.gate.metrics import METRICS
from ampdoctor.gate.policy import Policy
from ampdoctor.gate.readings import WHOLE, read_metrics

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.gate.baseline import Known
    from ampdoctor.gate.metrics import Metric
    from ampdoctor.gate.readings import Reading
    from ampdoctor.gate.result import FindingCheck
    from ampdoctor.trace.run import Run


class Direction(str, Enum):
    """Which way a number went, as far as it is no noise."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    UNKNOWN = "not in both"


@dataclass(frozen=True)
class Change:
    """One metric at one site, in both runs.

    Attributes:
        metric: the metric.
        site: where; empty for the run as a whole.
        before: what the first run came to; None where it was not measured.
        now: what the second one came to; likewise.
        direction: which way it went.
        size: how much worse it is, in tolerances of the metric; negative where it is better.
    """

    metric: Metric
    site: str
    before: Reading | None
    now: Reading | None
    direction: Direction
    size: float

    @property
    def relative(self) -> float | None:
        """The change as a share of what it was; None where that is 0, or not known."""
        if self.before is None or self.now is None or not self.before.value:
            return None
        return (self.now.value - self.before.value) / abs(self.before.value)

    @property
    def grade(self) -> Grade:
        """The less certain of the two."""
        order = (Grade.ESTIMATED, Grade.OBSERVED, Grade.MEASURED)
        return min((r.grade for r in (self.before, self.now) if r is not None), key=order.index)


@dataclass(frozen=True)
class Difference:
    """What changed between two runs.

    Attributes:
        before: diagnosis of the first.
        now: diagnosis of the second.
        changes: of all metrics and sites, worst first.
        findings: of the second run, with what the first makes of them.
        fixed: findings of the first that are gone.
        new_sites: sites that only the second has.
        gone_sites: sites that only the first has.
        machines: what differs in device and versions, as (name, before, now).
    """

    before: Diagnosis
    now: Diagnosis
    changes: tuple[Change, ...]
    findings: tuple[FindingCheck, ...]
    fixed: tuple[Known, ...]
    new_sites: tuple[str, ...]
    gone_sites: tuple[str, ...]
    machines: tuple[tuple[str, str, str], ...]


def difference_of(before: tuple[Run, Diagnosis], now: tuple[Run, Diagnosis]) -> Difference:
    """Return what changed from the run `before` to the run `now`."""
    read = [read_metrics(run) for run, _ in (before, now)]
    result = check(*now, Policy(), baseline_of([before], read[:1]), read[1])
    first, second = ({(r.metric, r.site): r for r in readings} for readings in read)
    keys = [key for key in {**first, **second} if key[1] == WHOLE or (key in first and key in second)]
    changes = [_change(key, first.get(key), second.get(key)) for key in keys]
    one, other = machine_of(before[0].info), machine_of(now[0].info)
    machines = [(n, one.get(n, ""), other.get(n, "")) for n in {**one, **other} if one.get(n, "") != other.get(n, "")]
    return Difference(
        before[1], now[1], tuple(sorted(changes, key=_rank)), result.findings, result.fixed,
        result.new_sites, result.gone_sites, tuple(machines),
    )  # fmt: skip


def _rank(change: Change) -> tuple[bool, float, int, str]:
    known = change.direction is not Direction.UNKNOWN
    return not known, -change.size, [*METRICS].index(change.metric.name), change.site


def _change(key: tuple[str, str], before: Reading | None, now: Reading | None) -> Change:
    metric = METRICS[key[0]]
    if before is None or now is None:
        return Change(metric, key[1], before, now, Direction.UNKNOWN, 0.0)
    size = metric.worsening(before.value, now.value)
    direction = Direction.WORSE if size > 1.0 else Direction.BETTER if size < -1.0 else Direction.SAME
    return Change(metric, key[1], before, now, direction, size)
