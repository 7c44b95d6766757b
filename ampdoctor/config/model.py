"""The settings themselves. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ampdoctor.config.gate import GateSettings
from ampdoctor.rules import discover

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule

SECTION = "tool.ampdoctor"


@dataclass(frozen=True)
class Ignore:
    """Findings that the user has looked at and accepts.

    Attributes:
        rule: slug of the rule.
        reason: why; shown wherever the finding would have been.
        site: glob over the finding's sites; the finding is accepted where all of its sites match, and not where only
            some do: what happens at the others has not been accepted.
    """

    rule: str
    reason: str
    site: str = "*"

    def covers(self, finding: Finding) -> bool:
        """Whether `finding` is one of those accepted."""
        sites = finding.location.sites or ("",)
        return finding.name == self.rule and all(fnmatchcase(s, self.site) for s in sites)

    def notice(self, findings: Sequence[Finding]) -> str:
        """Return that this entry covers none of `findings`, in a sentence; empty where it covers one."""
        if any(self.covers(finding) for finding in findings):
            return ""
        where = "" if self.site == "*" else f", site {self.site}"
        found = any(finding.name == self.rule for finding in findings)
        why = ". A finding is accepted only where all of its sites match" if found else ""
        return f"An entry of [{SECTION}] matched nothing: rule {self.rule}{where}{why}."


@dataclass(frozen=True)
class Config:
    """Settings of a diagnosis and of the gate.

    Attributes:
        thresholds: by rule name, then by threshold name.
        ignore: accepted findings.
        gate: what `ampdoctor check` lets pass.
        path: the file that they come from; None where there is none.
    """

    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ignore: tuple[Ignore, ...] = ()
    gate: GateSettings = field(default_factory=GateSettings)
    path: Path | None = field(default=None, compare=False)

    def reason_to_ignore(self, finding: Finding) -> str | None:
        """Return why the user accepts `finding`; None where they don't."""
        return next((entry.reason for entry in self.ignore if entry.covers(finding)), None)

    def notices(self, findings: Sequence[Finding]) -> tuple[str, ...]:
        """Return which entries cover none of `findings`, one sentence each."""
        return tuple(notice for entry in self.ignore if (notice := entry.notice(findings)))


def rules_in_force(config: Config) -> list[Rule]:
    """Return an instance of every rule with the thresholds of `config`."""
    return [rule(config.thresholds.get(rule.name)) for rule in discover()]
