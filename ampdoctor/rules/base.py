"""What a rule is: one file with one class that holds its code, thresholds, documentation, examples and logic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ampdoctor.errors import ConfigError
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampdoctor.trace.builder import RunBuilder
    from ampdoctor.trace.run import Run


ANOTHER_RANK = ("another rank",)
"""What a rule needs that compares ranks."""


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares with, and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True)
class Example:
    """A small run that documents and tests a rule.

    Attributes:
        title: what the run is ("ReLU zeros at a scale that fits").
        build: returns the run in a builder.
    """

    title: str
    build: Callable[[], RunBuilder]


class Rule(ABC):
    """One kind of fault, found by its cause.

    The class docstring is the rule's page (`ampdoctor explain NAME`): a first line that says what is wrong, then the
    headings *What it means*, *Why it matters*, *How to fix* and *Not to be mistaken for*.

    Attributes:
        code: stable code (`AMP001`).
        name: stable slug (`gradient-underflow`).
        severity: severity of a finding that the rule does not set itself.
        needs: "table" or "table.column" without which the rule is skipped, never passed.
        after: names of the rules whose findings explain this one's away: it becomes their consequence.
        thresholds: by name; `[tool.ampdoctor.rules.<name>]` overrides them.
        HEALTHY: runs on which the rule must stay silent.
        SICK: runs on which it must speak.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[str, ...]]
    after: ClassVar[tuple[str, ...]] = ()
    thresholds: ClassVar[Mapping[str, Threshold]] = {}
    HEALTHY: ClassVar[tuple[Example, ...]]
    SICK: ClassVar[tuple[Example, ...]]

    def __init__(self, overrides: Mapping[str, float] | None = None) -> None:
        unknown = set(overrides or {}) - set(self.thresholds)
        if unknown:
            raise ConfigError(
                f"rule {self.name} has no threshold {', '.join(sorted(unknown))}",
                hint="its thresholds: " + (", ".join(self.thresholds) or "none"),
            )
        self._values = {k: t.value for k, t in self.thresholds.items()} | dict(overrides or {})

    def lacks(self, run: Run) -> list[str]:
        """Return what the rule needs and `run` does not have; with anything in it the rule is skipped, not passed."""
        return run.missing(self.needs)

    @abstractmethod
    def check(self, run: Run) -> Iterator[Finding]:
        """Yield what is wrong with `run`, at most one finding per cause."""

    def threshold(self, name: str) -> float:
        """Return the value in force of the threshold `name`."""
        return self._values[name]

    def finding(
        self,
        summary: str,
        *,
        evidence: Sequence[Evidence],
        fixes: Sequence[Fix],
        location: Location,
        confidence: Confidence = Confidence.HIGH,
        grade: Grade = Grade.OBSERVED,
        severity: Severity | None = None,
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            summary=summary,
            confidence=confidence,
            grade=grade,
            location=location,
            evidence=tuple(evidence),
            fixes=tuple(fixes),
        )
