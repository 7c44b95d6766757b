"""What pytest's terminal report says in the end: which tests recorded, and what was found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def summary(told: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Return the lines of the section.

    Args:
        told: names of tests, each with what was recorded in it, as JSON; a name for each recording.
    """
    # Workers report in any order, those of one test in that in which it made them.
    entries = sorted(((test, json.loads(text)) for test, text in told), key=lambda entry: entry[0])
    findings = sum(entry.get("failing", 0) for _, entry in entries)
    milder = sum(len(entry.get("findings", ())) for _, entry in entries) - findings
    tests = counted(len({test for test, _ in entries}), "test")
    found = counted(findings, "finding") if findings else "no findings"
    found += f" (and {milder} below fail-on)" if milder else ""
    yield f"{counted(len(entries), 'run')} recorded in {tests}, {found}"
    for test, entry in entries:
        yield from _of(test, entry)


def _of(test: str, entry: dict[str, Any]) -> Iterator[str]:
    if "trouble" in entry:
        yield f"{test}: not judged: {entry['trouble']}"
    else:
        found = entry["findings"]
        names = ", ".join(f"{name} ({severity})" for severity, name, _ in found) or "no findings"
        yield f"{test}: {counted(entry['steps'], 'step')}, {entry['examined']} examined: {names}"
    if entry["kept"]:
        yield f"    kept: ampdoctor diagnose {entry['kept']}"
