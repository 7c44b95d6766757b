"""Diagnosis and result of a gate as JSON for other programs (DESIGN §8).

Adding a key keeps SCHEMA_VERSION; changing or removing one raises it. JSON has no NaN or infinity, and null means "not
known": such numbers are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from ampdoctor.report.gated import headline

if TYPE_CHECKING:
    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.baseline import Known
    from ampdoctor.gate.result import FindingCheck, GateResult, MetricCheck

SCHEMA_VERSION = 1


def render(diagnosis: Diagnosis) -> str:
    """Return `diagnosis` as indented JSON, keys in a fixed order."""
    return dumped(_document(diagnosis))


def render_gate(result: GateResult) -> str:
    """Return `result` as indented JSON, keys in a fixed order; of the diagnosis what the gate rests on."""
    return dumped(_gate_document(result))


def dumped(document: dict[str, Any]) -> str:
    """Return `document` as indented JSON."""
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": diagnosis.run,
        "verdict": diagnosis.verdict,
        "precision": asdict(diagnosis.precision),
        "findings": [finding_document(f) for f in diagnosis.findings],
        "passed": diagnosis.passed,
        "skipped": [asdict(rule) for rule in diagnosis.skipped],
        "crashed": [asdict(rule) for rule in diagnosis.crashed],
        "ignored": [{"reason": i.reason, **finding_document(i.finding)} for i in diagnosis.ignored],
        "examined": asdict(diagnosis.examined),
        "notices": diagnosis.notices,
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding with all that it says."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "grade": finding.grade,
        "summary": finding.summary,
        "fingerprint": finding.fingerprint,
        "location": asdict(finding.location),
        "evidence": [asdict(e) for e in finding.evidence],
        "fixes": [asdict(f) for f in finding.fixes],
        "consequences": [finding_document(c) for c in finding.consequences],
    }


def _gate_document(result: GateResult) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": result.diagnosis.run,
        "passed": result.passed,
        "result": headline(result),
        "verdict": result.diagnosis.verdict,
        "compared": result.compared,
        "findings": [_finding_check(made) for made in result.findings],
        "fixed": [known_document(known) for known in result.fixed],
        "metrics": [_metric_check(made) for made in result.metrics],
        "new_sites": result.new_sites,
        "gone_sites": result.gone_sites,
        "warnings": result.warnings,
        "crashed": [asdict(rule) for rule in result.diagnosis.crashed],
    }


def _finding_check(made: FindingCheck) -> dict[str, Any]:
    return {"outcome": made.outcome, "status": made.status, **finding_document(made.finding)}


def known_document(known: Known) -> dict[str, Any]:
    """Return a finding of a baseline."""
    return asdict(known)


def _metric_check(made: MetricCheck) -> dict[str, Any]:
    low, high = made.before or (None, None)
    return {
        "outcome": made.outcome,
        "metric": made.metric.name,
        "site": made.site,
        "unit": made.metric.unit,
        "against": made.against,
        "value": made.reading.value if made.reading else None,
        "grade": made.reading.grade if made.reading else None,
        "low": low,
        "high": high,
        "allowed": made.allowed,
        "why": made.why,
    }


def plain(value: Any) -> Any:
    """Return `value` with nothing in it that JSON does not know."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
