"""The diagnosis as JSON for other programs (DESIGN §8).

Adding a key keeps SCHEMA_VERSION; changing or removing one raises it. JSON has no NaN or infinity, and null means "not
known": such numbers are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding

SCHEMA_VERSION = 1


def render(diagnosis: Diagnosis) -> str:
    """Return `diagnosis` as indented JSON, keys in a fixed order."""
    return json.dumps(_plain(_document(diagnosis)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": diagnosis.run,
        "verdict": diagnosis.verdict,
        "precision": asdict(diagnosis.precision),
        "findings": [_finding(f) for f in diagnosis.findings],
        "passed": diagnosis.passed,
        "skipped": [asdict(rule) for rule in diagnosis.skipped],
        "crashed": [asdict(rule) for rule in diagnosis.crashed],
        "ignored": [{"reason": i.reason, **_finding(i.finding)} for i in diagnosis.ignored],
        "examined": asdict(diagnosis.examined),
        "notices": diagnosis.notices,
    }


def _finding(finding: Finding) -> dict[str, Any]:
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
        "consequences": [_finding(c) for c in finding.consequences],
    }


def _plain(value: Any) -> Any:
    """Return `value` with nothing in it that JSON does not know."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
