"""What a gate says, in the words that all formats share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.gate.readings import WHOLE
from ampdoctor.gate.result import FindingCheck, MetricCheck, Outcome, Status
from ampdoctor.gate.values import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult

STATUS_TEXT = {
    Status.NEW: "new",
    Status.UNCHANGED: "known",
    Status.WORSE: "known, and worse now",
    Status.MOVED: "known, at other sites",
}
"""What each status of a finding is called."""

FAILURES_SHOWN = 10
"""Failed comparisons of sites that get a line; the rest are counted, and all are in the JSON."""

SITES_LISTED = 10
"""New and vanished sites that are named; the rest are counted, and all are in the JSON."""


def headline(result: GateResult) -> str:
    """Return the result in one sentence: what fails first, and how much more does."""
    failures = result.failures
    if failures:
        more = len(failures) - 1
        rest = f", and {counted(more, 'more check fails', 'more checks fail')}" if more else ""
        return f"failed: {reason(failures[0]).rstrip('.')}{rest}"
    checks = counted(len(result.metrics) + len(result.diagnosis.passed) + len(result.findings), "check")
    if result.diagnosis.crashed:
        rules = ", ".join(rule.rule for rule in result.diagnosis.crashed)
        return f"not judged by {rules}, which failed; {checks} found nothing"
    return f"passed: {checks}{'' if result.compared else ', compared with no baseline'}"


def reason(made: FindingCheck | MetricCheck) -> str:
    """Return what one check found, in a sentence that stands by itself."""
    if isinstance(made, MetricCheck):
        return f"{metric_title(made)}: {made.why}"
    return f"{made.finding.summary.rstrip('.')} ({made.finding.name}, {STATUS_TEXT[made.status]})"


def metric_title(made: MetricCheck) -> str:
    """Return the metric, and where: `flushed gradient of encoder.0.weight`."""
    return made.metric.title if made.site == WHOLE else f"{made.metric.title} of {made.site}"


def metric_id(made: MetricCheck) -> str:
    """Return how the command line names what was checked: `flushed@encoder.0.weight`."""
    return made.metric.name if made.site == WHOLE else f"{made.metric.name}@{made.site}"


def value_now(made: MetricCheck) -> str:
    """Return what the run came to, with its grade; a dash where it was not measured."""
    return "-" if made.reading is None else value_text(made.metric, made.reading.value)


def value_before(made: MetricCheck) -> str:
    """Return what the baseline's runs came to; a dash for a limit."""
    if made.before is None:
        return "-"
    return " to ".join(dict.fromkeys(value_text(made.metric, value) for value in made.before))


def value_allowed(made: MetricCheck) -> str:
    """Return the limit, or the value from which on a change is no noise; a dash where nothing fails it."""
    if made.allowed is None:
        return "-"
    value = min(max(made.allowed, 0.0), 1.0) if made.metric.unit.value == "share" else made.allowed
    return value_text(made.metric, value)


def shown_metrics(metrics: Sequence[MetricCheck]) -> list[MetricCheck]:
    """Return the comparisons worth a line: those of the run as a whole, and of sites the first that fail."""
    sites = [made for made in metrics if made.site != WHOLE and made.outcome is Outcome.FAIL]
    return [*(made for made in metrics if made.site == WHOLE), *sites[:FAILURES_SHOWN]]


def hidden_failures(metrics: Sequence[MetricCheck]) -> str:
    """Return how many more sites fail than are shown; empty where none do."""
    failing = sum(made.site != WHOLE and made.outcome is Outcome.FAIL for made in metrics)
    hidden = failing - FAILURES_SHOWN
    return counted(hidden, "more site fails", "more sites fail") if hidden > 0 else ""


def advice(finding: Finding) -> str:
    """Return the best fix in one line; empty where there is none."""
    return f"{finding.fixes[0].title}. {finding.fixes[0].expected}".strip() if finding.fixes else ""


def changes(result: GateResult) -> list[tuple[str, str]]:
    """Return what else there is to say, as (title, sentence)."""
    more = hidden_failures(result.metrics)
    said = [("Failures", more)] if more else []
    said += [("Fixed", f"{known.name}: {known.summary}") for known in result.fixed]
    for title, sites in (("New sites", result.new_sites), ("Sites gone", result.gone_sites)):
        if sites:
            said.append((title, listed(sites)))
    return said + [("Warning", warning) for warning in result.warnings]


def listed(sites: tuple[str, ...]) -> str:
    """Return the first of `sites`, and how many more there are."""
    hidden = len(sites) - SITES_LISTED
    return ", ".join(sites[:SITES_LISTED]) + (f" and {hidden} more" if hidden > 0 else "")
