"""diagnose(run) -> Diagnosis: asks the rules, and folds what merely follows under its cause."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.code_lines import CodeLines
from ampdoctor.analysis.forward.forward_reach import harmed_steps
from ampdoctor.analysis.ranks import differing_ranks
from ampdoctor.causes import root_findings
from ampdoctor.config import Config, rules_in_force
from ampdoctor.diagnosis import Diagnosis, Examined, Ignored, NotRun
from ampdoctor.finding import Severity
from ampdoctor.precision import precision_used
from ampdoctor.rules.base import ANOTHER_RANK
from ampdoctor.trace.rows import uncollected
from ampdoctor.verdict import verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule
    from ampdoctor.trace.run import Run

__all__ = ["Diagnosis", "Examined", "Ignored", "NotRun", "diagnose"]

NO_STEP = "no step was completed"
"""Why a rule is skipped on a run that ended, or raised, in its first step. It may speak, as of the exception, but where
it does not, nothing is said of the steps that there were to come."""


def diagnose(run: Run, config: Config | None = None, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """Examine `run` with every rule and return what is wrong with it, by its cause.

    Args:
        run: the run.
        config: accepted findings and thresholds; the defaults where left out.
        rules: the rules to ask; all there are, with the thresholds of `config`, where left out.
    """
    config = config or Config()
    in_force = rules_in_force(config) if rules is None else rules
    with uncollected():
        said = _ask(run, in_force)
        said.findings = _of_all_ranks(run, in_force, said.findings)
    roots = root_findings(said.findings, in_force, [s.step for s in run.steps if s.examined], harmed_steps(run))
    kept, ignored = _without_accepted(roots, config)
    return Diagnosis(
        run=str(run.path or ""),
        verdict=verdict_of(run, kept, [rule.rule for rule in said.crashed], [i.finding for i in ignored]),
        precision=precision_used(run),
        findings=kept,
        passed=tuple(said.passed),
        skipped=tuple(said.skipped),
        crashed=tuple(said.crashed),
        ignored=ignored,
        examined=Examined.of(run),
        notices=config.notices(said.findings),
        lines=CodeLines.of(run),
    )


def _of_all_ranks(run: Run, rules: Sequence[Rule], findings: list[Finding]) -> list[Finding]:
    """Return the findings with their ranks, and with the faults of ranks that the first one differs from.

    What all ranks have is found on the first. A rule that compares ranks says itself which it means.
    """
    if len(run.ranks) < 2:
        return findings
    own = {id(f): f for f in findings}
    ranks = {id(f): {run.ranks[0]} for f in findings}
    for rank in differing_ranks(run):
        for finding in _ask(run.of_rank(rank), [rule for rule in rules if rule.needs != ANOTHER_RANK]).findings:
            same = next((key for key, f in own.items() if _is_the_same(f, finding)), None)
            if same is not None:
                ranks[same].add(rank)
            elif finding.severity is not Severity.NOTE:
                own[id(finding)], ranks[id(finding)] = finding, {rank}
    compared = {rule.name for rule in rules if rule.needs == ANOTHER_RANK}
    return [f if f.name in compared else _on(f, tuple(sorted(ranks[key]))) for key, f in own.items()]


def _is_the_same(one: Finding, other: Finding) -> bool:
    return (one.code, one.location.source) == (other.code, other.location.source)


def _on(finding: Finding, ranks: tuple[int, ...]) -> Finding:
    return replace(finding, location=replace(finding.location, ranks=ranks))


@dataclass
class _Said:
    """What the rules said, before it is sorted."""

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    skipped: list[NotRun] = field(default_factory=list)
    crashed: list[NotRun] = field(default_factory=list)


def _ask(run: Run, rules: Sequence[Rule]) -> _Said:
    said = _Said()
    for rule in rules:
        try:
            absent = rule.lacks(run)
            findings = [] if absent else list(rule.check(run))
        except Exception as error:  # noqa: BLE001 - a rule that fails is shown as failed, never as passed
            said.crashed.append(NotRun(rule.name, f"{type(error).__name__}: {error}"))
            continue
        said.findings += findings
        if not findings and not run.steps:
            said.skipped.append(NotRun(rule.name, NO_STEP))
        elif absent:
            said.skipped.append(NotRun(rule.name, "not recorded: " + ", ".join(absent)))
        elif not findings:
            said.passed.append(rule.name)
    return said


def _without_accepted(roots: Sequence[Finding], config: Config) -> tuple[tuple[Finding, ...], tuple[Ignored, ...]]:
    """Take out what the user accepts. An accepted cause takes its consequences along: they are explained by it."""
    kept: list[Finding] = []
    ignored: list[Ignored] = []
    for root in roots:
        reason = config.reason_to_ignore(root)
        if reason is not None:
            ignored.append(Ignored(root, reason))
            continue
        reasons = {id(c): config.reason_to_ignore(c) for c in root.consequences}
        ignored += [Ignored(c, r) for c in root.consequences if (r := reasons[id(c)]) is not None]
        left = tuple(c for c in root.consequences if reasons[id(c)] is None)
        kept.append(replace(root, consequences=left))
    return tuple(kept), tuple(ignored)
