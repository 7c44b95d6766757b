"""What a rule says: a finding, its evidence and its fixes. Plain frozen data; nothing here renders or reads a trace."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum


class Severity(str, Enum):
    """How much the run is harmed."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst, so that findings sort worst first."""
        return list(Severity).index(self)


class Grade(str, Enum):
    """How a number was obtained (DESIGN §4)."""

    OBSERVED = "observed"
    ESTIMATED = "estimated"
    MEASURED = "measured"


class Confidence(str, Enum):
    """How sure the rule is of the cause."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True)
class Evidence:
    """One named number and the sentence that it backs.

    Attributes:
        name: snake_case name, with its unit (`flushed_share`, `loss_scale`).
        value: the number (or name) itself; None is never evidence.
        text: the sentence a person reads; it repeats the value in readable form.
        grade: how the value was obtained.
    """

    name: str
    value: float | int | str | bool
    text: str
    grade: Grade = Grade.OBSERVED


@dataclass(frozen=True)
class Fix:
    """One thing to change.

    Attributes:
        title: what to do, imperative.
        code: the concrete change for the user's stack, as lines of Python or a small diff.
        expected: what it is expected to do, in one sentence.
        grade: whether `expected` was measured (by a twin), estimated from histograms, or follows from what was
            observed.
    """

    title: str
    code: str
    expected: str
    grade: Grade = Grade.ESTIMATED


@dataclass(frozen=True)
class Location:
    """Where and when.

    Attributes:
        sites: `module.slot (role)` strings, most affected first.
        first_step: first step on which it was seen.
        last_step: last step on which it was seen.
        ranks: ranks on which it was seen.
        source: `file:line` of the offending call in the user's code, where known.
    """

    sites: tuple[str, ...] = ()
    first_step: int | None = None
    last_step: int | None = None
    ranks: tuple[int, ...] = (0,)
    source: str | None = None


@dataclass(frozen=True)
class Finding:
    """One fault of a run, by its cause.

    Attributes:
        code: stable code of the rule (`AMP001`).
        name: stable slug of the rule (`gradient-underflow`).
        severity: how much the run is harmed.
        summary: one sentence in which the person recognises their run.
        confidence: how sure the rule is of the cause.
        grade: the grade of the number that decided.
        location: where and when.
        evidence: the numbers behind every sentence.
        fixes: ranked, best first.
        consequences: findings that merely follow from this one; filled in by the engine.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    confidence: Confidence
    grade: Grade
    location: Location = field(default_factory=Location)
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    consequences: tuple[Finding, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Identity across runs: the rule, the sites and the source line, without steps or values."""
        parts = (self.code, self.name, *sorted(self.location.sites), self.location.source or "")
        return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
