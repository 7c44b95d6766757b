"""What a gate says: plain frozen data, which reports put into words and tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.baseline import Known
    from ampdoctor.gate.metrics import Metric
    from ampdoctor.gate.readings import Reading


class Outcome(str, Enum):
    """What came of one check."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 - no password
    NOT_MEASURED = "not measured"
    """Nothing to compare: as bad as a failure where the user set a limit, and worth a word where a baseline did."""


class Against(str, Enum):
    """What a reading was compared with."""

    LIMIT = "limit"
    BASELINE = "baseline"


class Status(str, Enum):
    """What a baseline makes of a finding."""

    NEW = "new"
    UNCHANGED = "unchanged"
    WORSE = "worse"
    """The baseline has it too, but less severe."""
    MOVED = "moved"
    """The same rule at other sites: modules were renamed, or the fault spread or shrank."""


NEWS = (Status.NEW, Status.WORSE)
"""What a finding has to be to fail a gate."""


@dataclass(frozen=True)
class MetricCheck:
    """One metric at one site, compared.

    Attributes:
        metric: the metric.
        site: where; empty for the run as a whole.
        outcome: what came of it.
        against: a limit, or a baseline.
        allowed: the value that may not be exceeded; None where none was set.
        reading: what the run came to; None where it was not measured.
        before: the baseline's band as (low, high); None for a limit.
        why: in one sentence.
    """

    metric: Metric
    site: str
    outcome: Outcome
    against: Against
    allowed: float | None
    reading: Reading | None
    before: tuple[float, float] | None
    why: str


@dataclass(frozen=True)
class FindingCheck:
    """One finding, and whether it fails the gate."""

    finding: Finding
    status: Status
    outcome: Outcome


@dataclass(frozen=True)
class GateResult:
    """All that a gate found.

    Attributes:
        diagnosis: of the run.
        findings: its findings, those that count.
        metrics: comparisons, failures first.
        fixed: findings of the baseline that are gone.
        new_sites: sites that the baseline does not have.
        gone_sites: sites that only the baseline has.
        warnings: what makes the comparison weaker, one sentence each.
        compared: there was a baseline.
        foreign: it has sites, and none of them is in the run: only the run as a whole was compared.
    """

    diagnosis: Diagnosis
    findings: tuple[FindingCheck, ...] = ()
    metrics: tuple[MetricCheck, ...] = ()
    fixed: tuple[Known, ...] = ()
    new_sites: tuple[str, ...] = ()
    gone_sites: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    compared: bool = False
    foreign: bool = False

    @property
    def failures(self) -> tuple[FindingCheck | MetricCheck, ...]:
        """What fails the gate."""
        checks: tuple[FindingCheck | MetricCheck, ...] = (*self.findings, *self.metrics)
        return tuple(made for made in checks if made.outcome is Outcome.FAIL)

    @property
    def passed(self) -> bool:
        """Nothing fails it."""
        return not self.failures
