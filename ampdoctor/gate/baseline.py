"""A baseline: what good runs came to, as a small JSON file that is committed and whose changes are reviewed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Grade, Severity
from ampdoctor.gate.metrics import METRICS
from ampdoctor.gate.readings import WHOLE, read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.gate.readings import Reading
    from ampdoctor.trace.info import RunInfo
    from ampdoctor.trace.run import Run

KIND = "ampdoctor-baseline"

VERSION = 1
"""Version of the file. Adding a key keeps it; changing or removing one raises it."""

DIGITS = 4
"""Significant digits that are kept: fewer, and small values would move; more, and every line of the file would."""

HINT = "write it anew: ampdoctor baseline RUN -o FILE"


@dataclass(frozen=True)
class Band:
    """What the runs of a baseline came to in one metric at one site.

    Attributes:
        low: the least.
        high: the most.
        grade: how it was obtained; where the runs differ, the less certain.
    """

    low: float
    high: float
    grade: Grade = Grade.OBSERVED


@dataclass(frozen=True)
class Known:
    """A finding that a baseline's run had: it is not news."""

    fingerprint: str
    code: str
    name: str
    severity: Severity
    summary: str


@dataclass(frozen=True)
class Baseline:
    """What good runs came to.

    Attributes:
        runs: how many.
        made_on: device, world size and versions, by name.
        bands: by metric and site.
        findings: what was found in any of them, by fingerprint.
    """

    runs: int
    made_on: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[tuple[str, str], Band] = field(default_factory=dict)
    findings: Mapping[str, Known] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Nothing was measured: whatever is compared with it would pass."""
        return not self.bands


def machine_of(info: RunInfo) -> dict[str, str]:
    """Return what a run's numbers depend on beside its code."""
    versions = {name: info.versions[name] for name in ("torch", "cuda", "python") if info.versions.get(name)}
    return {"device": info.device, "world_size": str(info.world_size), **versions}


def baseline_of(
    judged: Sequence[tuple[Run, Diagnosis]], readings: Sequence[Sequence[Reading]] | None = None
) -> Baseline:
    """Return the baseline that these runs make together: several show how much is noise.

    Args:
        judged: the runs with their diagnoses.
        readings: of each; read from the runs where left out.
    """
    seen: dict[tuple[str, str], list[tuple[float, Grade]]] = {}
    findings: dict[str, Known] = {}
    for number, (run, diagnosis) in enumerate(judged):
        for reading in read_metrics(run) if readings is None else readings[number]:
            seen.setdefault((reading.metric, reading.site), []).append((reading.value, reading.grade))
        for f in diagnosis.findings:
            known = findings.get(f.fingerprint)
            if known is None or f.severity.rank < known.severity.rank:  # of runs that differ, the worst was good enough
                findings[f.fingerprint] = Known(f.fingerprint, f.code, f.name, f.severity, f.summary)
    bands = {key: _band(values) for key, values in seen.items()}
    return Baseline(len(judged), machine_of(judged[0][0].info) if judged else {}, bands, findings)


def _band(values: Iterable[tuple[float, Grade]]) -> Band:
    numbers, grades = zip(*values, strict=True)
    order = (Grade.ESTIMATED, Grade.OBSERVED, Grade.MEASURED)
    return Band(min(numbers), max(numbers), min(grades, key=order.index))


def text_of(baseline: Baseline) -> str:
    """Return the file: keys sorted, a site a line, so that a change of one is a change of one line."""
    whole = {metric: _entry(band) for (metric, site), band in baseline.bands.items() if site == WHOLE}
    sites: dict[str, dict[str, Any]] = {}
    for (metric, site), band in baseline.bands.items():
        if site != WHOLE:
            sites.setdefault(metric, {})[site] = _entry(band)
    parts = [
        f'"kind": {_json(KIND)}',
        f'"schema_version": {VERSION}',
        f'"runs": {baseline.runs}',
        f'"made_on": {_object(baseline.made_on, 1)}',
        f'"metrics": {_object(whole, 1)}',
        f'"sites": {_object({m: _Raw(_object(s, 2)) for m, s in sorted(sites.items())}, 1)}',
        f'"findings": {_object({f.fingerprint: _finding(f) for f in baseline.findings.values()}, 1)}',
    ]
    return "{\n" + ",\n".join(f"  {part}" for part in parts) + "\n}\n"


class _Raw(str):
    """JSON as it is to be written."""

    __slots__ = ()


def _object(values: Mapping[str, Any], depth: int) -> str:
    if not values:
        return "{}"
    lines = (f"{_json(key)}: {v if isinstance(v, _Raw) else _json(v)}" for key, v in sorted(values.items()))
    inner, outer = "  " * (depth + 1), "  " * depth
    return "{\n" + ",\n".join(inner + line for line in lines) + f"\n{outer}}}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _entry(band: Band) -> list[Any]:
    # Outwards, so that the run itself lies within.
    return [_rounded(band.low, ROUND_FLOOR), _rounded(band.high, ROUND_CEILING), band.grade.value]


def _rounded(value: float, rounding: str) -> float:
    short = float(Context(prec=DIGITS, rounding=rounding).create_decimal(repr(value)))
    return int(short) if short.is_integer() else short


def _finding(known: Known) -> dict[str, str]:
    return {"code": known.code, "name": known.name, "severity": known.severity.value, "summary": known.summary}


def read_baseline(path: Path) -> Baseline:
    """Read the baseline at `path`.

    Raises:
        AmpDoctorError: it is not there, no baseline, or of a version that is too new.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AmpDoctorError(f"there is no baseline {path}", hint=HINT) from None
    except (OSError, ValueError, RecursionError) as error:
        raise AmpDoctorError(f"cannot read the baseline {path}: {error}", hint=HINT) from None
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise AmpDoctorError(f"{path} is not a baseline", hint=HINT)
    version = raw.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise AmpDoctorError(f"{path} does not say which version of a baseline it is", hint=HINT)
    if version > VERSION:
        hint = "upgrade ampdoctor, or " + HINT
        raise AmpDoctorError(f"{path} has version {version}; this ampdoctor reads up to {VERSION}", hint=hint)
    try:
        return _parsed(raw)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise AmpDoctorError(f"{path} is damaged: {type(error).__name__}: {error}", hint=HINT) from None


def _parsed(raw: dict[str, Any]) -> Baseline:
    bands = {(metric, WHOLE): _band_of(entry) for metric, entry in raw["metrics"].items() if metric in METRICS}
    for metric, sites in raw["sites"].items():
        if metric in METRICS:
            bands |= {(metric, str(site)): _band_of(entry) for site, entry in sites.items()}
    findings = {
        str(f): Known(str(f), str(v["code"]), str(v["name"]), Severity(v["severity"]), str(v["summary"]))
        for f, v in raw["findings"].items()
    }
    made_on = {str(key): str(value) for key, value in raw["made_on"].items()}
    return Baseline(int(raw["runs"]), made_on, bands, findings)


def _band_of(entry: list[Any]) -> Band:
    low, high, grade = entry
    if isinstance(low, bool) or isinstance(high, bool):
        raise TypeError(f"{entry!r} is no band")
    band = Band(float(low), float(high), Grade(grade))
    if not -math.inf < band.low <= band.high < math.inf:
        raise ValueError(f"{entry!r} is no band")
    return band
