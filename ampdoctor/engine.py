"""diagnose(run) -> Diagnosis: runs the rules and sorts root causes from what merely follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ampdoctor.config import Config, rules_in_force
from ampdoctor.finding import Finding, Severity
from ampdoctor.precision import PrecisionUsed, precision_used
from ampdoctor.verdict import verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.rules.base import Rule
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class NotRun:
    """A rule that said nothing, and why: a missing column (skipped) or an exception of ours (crashed)."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Ignored:
    """A finding that `[tool.ampdoctor]` accepts, with the user's reason."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Examined:
    """What the diagnosis rests on.

    Attributes:
        steps: steps recorded.
        examined_steps: those on which tensors were recorded.
        tensors: tensor rows.
        modules: modules seen.
        gaps: what could not be examined, one sentence each.
    """

    steps: int
    examined_steps: int
    tensors: int
    modules: int
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run.

    Attributes:
        run: path of the run folder; empty for a run built in memory.
        verdict: one sentence.
        precision: the precision that the run really used.
        findings: root findings, worst first, each with its consequences.
        passed: names of the rules that had what they need and found nothing.
        skipped: rules that lacked what they need.
        crashed: rules that failed.
        ignored: findings that the user accepts.
        examined: what this rests on.
    """

    run: str
    verdict: str
    precision: PrecisionUsed
    findings: tuple[Finding, ...] = ()
    passed: tuple[str, ...] = ()
    skipped: tuple[NotRun, ...] = ()
    crashed: tuple[NotRun, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    examined: Examined = field(default_factory=lambda: Examined(0, 0, 0, 0))

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Root findings of severity warning or error."""
        return tuple(f for f in self.findings if f.severity is not Severity.NOTE)


def diagnose(
    run: Run, config: Config | None = None, rules: Sequence[Rule] | None = None
) -> Diagnosis:
    """Examine `run` with every rule and return what is wrong with it, by its cause."""
    config = config or Config()
    found: list[Finding] = []
    passed: list[str] = []
    skipped: list[NotRun] = []
    crashed: list[NotRun] = []
    in_force = rules_in_force(config) if rules is None else list(rules)
    for rule in in_force:
        absent = run.missing(rule.needs)
        if absent:
            skipped.append(NotRun(rule.name, "not recorded: " + ", ".join(absent)))
            continue
        try:
            findings = list(rule.check(run))
        except Exception as error:  # noqa: BLE001 - a rule that fails is shown as failed, never as passed
            crashed.append(NotRun(rule.name, f"{type(error).__name__}: {error}"))
            continue
        found += findings
        if not findings:
            passed.append(rule.name)
    ignored = [Ignored(f, i.reason) for f in found for i in config.ignore[:] if i.covers(f)]
    accepted = {id(entry.finding) for entry in ignored}
    roots = root_findings([f for f in found if id(f) not in accepted], in_force)
    examined = _examined(run)
    precision = precision_used(run)
    return Diagnosis(
        run=str(run.path or ""),
        verdict=verdict_of(run, roots, precision, crashed=bool(crashed)),
        precision=precision,
        findings=roots,
        passed=tuple(passed),
        skipped=tuple(skipped),
        crashed=tuple(crashed),
        ignored=tuple(ignored),
        examined=examined,
    )


def root_findings(findings: Sequence[Finding], rules: Sequence[Rule]) -> tuple[Finding, ...]:
    """Fold every finding under the root that explains it, and return the roots, worst and earliest first.

    A finding is a consequence where its rule names another's in `after` and that one was seen no later. Chains end at
    the first cause; a finding without a step is taken to have been there from the start.
    """
    after = {rule.name: rule.after for rule in rules}
    cause = {id(f): _cause(f, findings, after) for f in findings}

    def root(f: Finding) -> Finding:
        seen = {id(f)}
        while (above := cause[id(f)]) is not None and id(above) not in seen:
            seen.add(id(above))
            f = above
        return f

    roots = [f for f in findings if root(f) is f]
    folded = [
        replace(r, consequences=tuple(sorted((f for f in findings if f is not r and root(f) is r), key=_order)))
        for r in roots
    ]
    return tuple(sorted(folded, key=_order))


def _cause(finding: Finding, findings: Sequence[Finding], after: dict[str, tuple[str, ...]]) -> Finding | None:
    candidates = [
        f for f in findings
        if f.name in after.get(finding.name, ()) and f is not finding
        and f.severity.rank <= finding.severity.rank and _start(f) <= _start(finding)
    ]  # fmt: skip
    return min(candidates, key=_order, default=None)


def _start(finding: Finding) -> int:
    return -1 if finding.location.first_step is None else finding.location.first_step


def _order(finding: Finding) -> tuple[int, int, str]:
    return finding.severity.rank, _start(finding), finding.code


def _examined(run: Run) -> Examined:
    gaps = list(run.notices)
    if run.cut:
        gaps.append("the run was cut: its process was killed before it could finish")
    if run.info.status == "degraded":
        gaps.append(f"the recorder gave up ({run.info.degraded}); the training went on unrecorded")
    if not run.steps:
        gaps.append("no optimizer step was seen")
    tensors = run.table("tensors")
    examined = sum(step.examined for step in run.steps)
    return Examined(len(run.steps), examined, tensors.num_rows, len(run.modules), tuple(gaps))
