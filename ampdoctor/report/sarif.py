"""SARIF 2.1.0, which GitHub's code scanning and other viewers of static analysis take.

Rules bring their documentation along. A finding keeps its fingerprint from run to run, so that a viewer knows which are
new. Sites of the model are logical locations. Every result has a physical one too: GitHub's code scanning demands it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ampdoctor.errors import UnknownRuleError
from ampdoctor.finding import Severity
from ampdoctor.gate.result import FindingCheck, Outcome, Status
from ampdoctor.report.gated import advice, changes, headline, metric_id, metric_title
from ampdoctor.report.json import dumped
from ampdoctor.report.places import Place, place_in
from ampdoctor.report.rule_text import first_line
from ampdoctor.rules import find_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.metrics import Metric
    from ampdoctor.gate.result import GateResult, MetricCheck

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

FINGERPRINT = "ampdoctor/v1"
"""Name of our fingerprint; another way of making it gets another one."""

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}

_STATES = {Status.NEW: "new", Status.UNCHANGED: "unchanged", Status.WORSE: "updated", Status.MOVED: "updated"}


def render(diagnosis: Diagnosis) -> str:
    """Return a log with a result for each finding."""
    results = [_result(finding, diagnosis, _LEVELS[finding.severity]) for finding in diagnosis.findings]
    results += [
        _result(i.finding, diagnosis, _LEVELS[i.finding.severity])
        | {"suppressions": [{"kind": "external", "justification": _clean(i.reason)}]}
        for i in diagnosis.ignored
    ]
    rules = _rules([*diagnosis.findings, *(i.finding for i in diagnosis.ignored)])
    return _log(rules, results, diagnosis, diagnosis.verdict, diagnosis.notices)


def render_gate(result: GateResult) -> str:
    """Return a log with a result for each finding, with what a baseline makes of it, and for each metric that fails."""
    results = []
    for made in result.findings:
        level = "error" if made.outcome is Outcome.FAIL else _LEVELS[made.finding.severity]
        state = {"baselineState": _STATES[made.status]} if result.compared else {}
        results.append(_result(made.finding, result.diagnosis, level) | state)
    failing = [made for made in result.failures if not isinstance(made, FindingCheck)]
    results += [_metric_result(made, result.diagnosis) for made in failing]
    rules = _rules([made.finding for made in result.findings])
    rules += [_metric_rule(metric) for metric in dict.fromkeys(made.metric for made in failing)]
    notices = [f"{title}: {text}" for title, text in changes(result)]
    return _log(rules, results, result.diagnosis, headline(result), notices)


def _log(
    rules: Sequence[dict[str, Any]],
    results: Sequence[dict[str, Any]],
    diagnosis: Diagnosis,
    said: str,
    notices: Iterable[str],
) -> str:
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    failed = [_notification("error", f"rule {rule.rule} failed: {rule.reason}") for rule in diagnosis.crashed]
    invocation = {
        "executionSuccessful": not diagnosis.crashed,
        "toolExecutionNotifications": [*failed, *(_notification("note", text) for text in notices)],
    }
    run = {
        "tool": {"driver": {"name": "ampdoctor", "rules": rules}},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [{"ruleId": r["ruleId"], "ruleIndex": index[r["ruleId"]], **r} for r in results],
        "properties": {"verdict": _clean(said), "run": _clean(diagnosis.run)},
    }
    return dumped({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": _clean(text)}}


def _rules(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the rules of `findings`, each once, by code."""
    return [_rule(finding) for _, finding in sorted({f.code: f for f in findings}.items())]


def _rule(finding: Finding) -> dict[str, Any]:
    base = {"id": finding.code, "name": finding.name}
    try:
        rule = find_rule(finding.name)
    except UnknownRuleError:  # judged by rules of the caller's own
        return base
    page = inspect.getdoc(rule) or ""
    return {
        **base,
        "shortDescription": {"text": first_line(rule)},
        "fullDescription": {"text": first_line(rule)},
        "help": {"text": page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["mixed-precision"]},
    }


def _metric_rule(metric: Metric) -> dict[str, Any]:
    return {
        "id": f"metric/{metric.name}",
        "name": metric.name,
        "shortDescription": {"text": f"{metric.title} has got worse"},
        "fullDescription": {"text": metric.doc},
        "help": {"text": metric.doc},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, diagnosis: Diagnosis, level: str) -> dict[str, Any]:
    fix = advice(finding)
    text = finding.summary + (f"\nFix: {fix}" if fix else "")
    return {
        "ruleId": finding.code,
        "level": level,
        "message": {"text": _clean(text)},
        "locations": _locations(place_in(diagnosis, finding.location), diagnosis, finding.location.sites),
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "grade": finding.grade,
            "evidence": {e.name: e.value for e in finding.evidence},
        },
    }


def _locations(place: Place | None, diagnosis: Diagnosis, sites: Iterable[str]) -> list[dict[str, Any]]:
    """Return one location with the line of code and the sites of the model; without a line, the run's own file."""
    place = place or Place(f"{diagnosis.run or '.'}/run.json", 1)
    file: dict[str, Any] = {"uri": quote(_clean(place.file if place.relative else "/" + place.file.lstrip("/")))}
    file |= {"uriBaseId": "%SRCROOT%"} if place.relative else {"uri": "file://" + file["uri"]}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": file, "region": {"startLine": place.line}}}
    named = [{"fullyQualifiedName": name, "kind": "member"} for name in dict.fromkeys(map(_clean, sites))]
    return [location | ({"logicalLocations": named} if named else {})]


def _metric_result(made: MetricCheck, diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "ruleId": f"metric/{made.metric.name}",
        "level": "error",
        "message": {"text": _clean(f"{metric_title(made)}: {made.why}")},
        "locations": _locations(place_in(diagnosis), diagnosis, [made.site] if made.site else []),
        "partialFingerprints": {FINGERPRINT: f"{made.against.value}:{metric_id(made)}"},
    }


def _clean(text: str) -> str:
    """Return `text` without what JSON can't hold as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
