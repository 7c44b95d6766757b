"""A run in a notebook: a small card of plain HTML, with everything from the trace escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import counted
from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Severity

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.trace.run import Run

LONGEST = 400
"""Characters of a sentence or name that are shown."""

FINDINGS = 12
"""Findings that are listed."""

_TONES = {Severity.ERROR: "#b42318", Severity.WARNING: "#8a5a00", Severity.NOTE: "#3b5bdb"}
_SOUND = "#0b6e4f"
_FAINT = "opacity:.7;font-size:.9em"


@once_per_run
def card(run: Run) -> str:
    """Return a run as HTML: its verdict, how it ended, how long it is, and what was found.

    Colours of text and ground are the notebook's own, so that it is readable in a dark one too.
    """
    try:
        diagnosis = diagnose(run)
    except AmpDoctorError as error:
        return _box(_SOUND, f"<div>{_text(error.message)}</div>{_about(run)}")
    worst = min((f.severity for f in diagnosis.faults), key=lambda s: s.rank, default=None)
    verdict = f'<div style="font-weight:600;font-size:1.1em">{_text(diagnosis.verdict)}</div>'
    precision = f'<div style="{_FAINT}">{_text(diagnosis.precision.sentence)}</div>'
    return _box(_TONES[worst] if worst else _SOUND, f"{verdict}{precision}{_about(run)}{_findings(diagnosis)}")


def _box(color: str, inside: str) -> str:
    style = f"border:1px solid #8884;border-left:4px solid {color};border-radius:6px;padding:10px 14px;max-width:860px"
    return f'<div class="ampdoctor-run" style="{style}">{inside}</div>'


def _about(run: Run) -> str:
    examined = sum(step.examined for step in run.steps)
    parts = [run.info.status, counted(len(run.steps), "step"), f"{examined} examined", run.info.device]
    if len(run.ranks) > 1:
        parts.append(f"{len(run.ranks)} ranks")
    name = f"<b>{_text(run.path.name)}</b> · " if run.path is not None else ""
    return f'<div style="{_FAINT};margin-top:4px">{name}{" · ".join(_text(part) for part in parts if part)}</div>'


def _findings(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return ""
    shown = "".join(_finding(finding) for finding in diagnosis.findings[:FINDINGS])
    rest = len(diagnosis.findings) - FINDINGS
    more = f'<li style="{_FAINT}">and {rest} more</li>' if rest > 0 else ""
    return f'<ul style="margin:8px 0 0;padding-left:18px">{shown}{more}</ul>'


def _finding(finding: Finding) -> str:
    first = finding.location.first_step
    since = f' <span style="{_FAINT}">since step {first}</span>' if first is not None else ""
    follows = len(finding.consequences)
    fold = f' <span style="{_FAINT}">{counted(follows, "finding")} from it</span>' if follows else ""
    severity = finding.severity
    label = f'<b style="color:{_TONES[severity]}">{severity.value}</b>'
    return f"<li>{label} <code>{_text(finding.name)}</code>{since}{fold}<br>{_text(finding.summary)}</li>"


def _text(text: str) -> str:
    """Return text for HTML. Dollar signs go as well: notebooks take what is between two of them for a formula."""
    return escape(text[:LONGEST] + ("…" if len(text) > LONGEST else "")).replace("$", "&#36;")
