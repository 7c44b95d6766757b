"""How runs differ apart from their numbers: the findings, and the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.trace.info import RunInfo

NEW, FIXED, BOTH = "new", "fixed", "both"
"""What became of a finding: only in the other run, only in the one it is compared with, or in both."""


def changed_findings(base: Diagnosis, other: Diagnosis) -> list[tuple[str, Finding]]:
    """Return the findings of both, consequences too, by what became of them: new ones first, then fixed ones."""
    before = {f.fingerprint: f for f in _all(base.findings)}
    after = {f.fingerprint: f for f in _all(other.findings)}
    new = [(NEW, f) for key, f in after.items() if key not in before]
    fixed = [(FIXED, f) for key, f in before.items() if key not in after]
    both = [(BOTH, f) for key, f in after.items() if key in before]
    return [pair for kind in (new, fixed, both) for pair in sorted(kind, key=lambda p: p[1].severity.rank)]


def _all(findings: Sequence[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from finding.consequences


def settings_of(info: RunInfo, precision: str | None) -> dict[str, str]:
    """Return the settings of a run by their names, as text.

    Args:
        info: its run.json.
        precision: the precision that it really used; None where it is not known yet.
    """
    found = {} if precision is None else {"precision really used": precision}
    found |= {
        "command": " ".join(info.command),
        "device": info.device,
        "world size": str(info.world_size),
        "commit": info.git_commit or "",
        "host": info.host,
    }
    for group, values in (("", info.versions), ("torch: ", info.precision), ("recording: ", info.recording)):
        found |= {f"{group}{name}": str(value) for name, value in _flat(values)}
    return found


def _flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def differing(settings: Sequence[dict[str, str]]) -> tuple[list[tuple[str, list[str]]], int]:
    """Return the settings that are not the same in all runs, with each one's value, and how many are the same."""
    names = list(dict.fromkeys(name for own in settings for name in own))
    values = {name: [own.get(name, "") for own in settings] for name in names}
    found = [(name, own) for name, own in values.items() if len(set(own)) > 1]
    return found, len(names) - len(found)
