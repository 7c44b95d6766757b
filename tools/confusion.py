"""Runs every script of the zoo under plain `ampdoctor run` and writes what each is told beside what it should be told.

`make confusion` writes the table that `tests/zoo/README.md` keeps; `python -m tools.confusion NAME…` prints the rows of
scripts whose name contains one of the names. Each script runs in a fresh process, two at a time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ampdoctor.rules import discover
from tests.zoo.diagnosed import diagnosed, expectation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "zoo" / "README.md"
OURS = ROOT / "tests" / "zoo" / "scripts"
SHARED = ROOT.parent / "shared" / "zoo"
HEALTHY = "healthy"
_INTRODUCTION = """\
Written by `make confusion`: every script of this folder, and of the zoo beside the repository, run unmodified under
plain `ampdoctor run` in a fresh process. *First* is the first root finding; notes do not count on a healthy script."""

NOT_PRECISION = "AMP7"
"""Codes of the rules that say that precision is not at fault."""

PRECISION = ("AMP1", "AMP2", "AMP3", "AMP4", "AMP5")
"""Codes of those that say that it is; AMP6 is about memory and speed."""


@dataclass(frozen=True)
class Row:
    """What one script was told.

    Attributes:
        script: its name.
        shared: it is one of those that were handed to us, not one of ours.
        expected: the rule that its header names, or healthy.
        told: the root findings, worst first; of a healthy script without the notes, which are no faults.
        crashed: rules that crashed.
    """

    script: str
    shared: bool
    expected: str
    told: tuple[str, ...]
    crashed: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first root finding, or healthy where there is none."""
        return self.told[0] if self.told else HEALTHY

    @property
    def right(self) -> bool:
        """It is told its cause first; nothing at all where there is none."""
        return self.first == self.expected and not self.crashed


def scripts(names: Sequence[str] = ()) -> list[Path]:
    """Return the scripts whose name contains one of `names` (all without any)."""
    found = sorted([*SHARED.glob("[0-9]*.py"), *OURS.glob("*.py")])
    return [path for path in found if not names or any(name in path.stem for name in names)]


def judged(paths: Iterable[Path]) -> list[Row]:
    """Run the scripts, say what each was told as it ends, and return the rows in order."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(_told, paths))


def _told(script: Path) -> Row:
    row = _row(script)
    mark = "  " if row.right else "X "
    print(f"{mark}{row.script}: {row.expected} <- {', '.join(row.told) or HEALTHY}", file=sys.stderr, flush=True)
    return row


def _row(script: Path) -> Row:
    with TemporaryDirectory() as scratch:
        told = diagnosed(script, Path(scratch) / "run")
    crashed = tuple(rule["rule"] for rule in told.unsaid)
    shared = script.parent == SHARED
    expected = expectation(script)
    roots = told.faults if expected == HEALTHY else told.roots
    return Row(script.stem, shared, expected, tuple(roots), crashed)


def page(rows: Sequence[Row]) -> str:
    """Return the table as Markdown: per cause what its scripts were told, and each script that was told wrong."""
    lines = [
        "# What every script is told",
        "",
        _INTRODUCTION,
        "",
        *_totals(rows),
        "",
        "| expected | scripts | told so first | told instead |",
        "|---|---|---|---|",
        *(_cause(name, [r for r in rows if r.expected == name]) for name in _causes(rows)),
    ]
    wrong = [r for r in rows if not r.right]
    if wrong:
        lines += ["", "| script | expected | told |", "|---|---|---|"]
        lines += [f"| {r.script} | {r.expected} | {', '.join(r.told) or HEALTHY} |" for r in wrong]
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Row]) -> list[str]:
    lines = ["| | faulty | told its cause first | healthy | told nothing |", "|---|---|---|---|---|"]
    for title, shared in (("handed to us", True), ("our own", False)):
        some = [r for r in rows if r.shared is shared]
        healthy = [r for r in some if r.expected == HEALTHY]
        faulty = [r for r in some if r.expected != HEALTHY]
        lines.append(
            f"| {title} | {len(faulty)} | {sum(r.right for r in faulty)} | {len(healthy)} | "
            f"{sum(r.right for r in healthy)} |"
        )
    code = {rule.name: rule.code for rule in discover()}
    not_precision = [r for r in rows if code.get(r.expected, "").startswith(NOT_PRECISION)]
    blamed = sum(any(code.get(t, "").startswith(PRECISION) for t in r.told) for r in not_precision)
    return [
        *lines,
        "",
        f"Of {len(not_precision)} scripts that fail for other reasons than precision, {blamed} are blamed on it too.",
    ]


def _causes(rows: Sequence[Row]) -> list[str]:
    order = {rule.name: rule.code for rule in discover()}
    return sorted({r.expected for r in rows}, key=lambda name: (order.get(name, "Z"), name))


def _cause(name: str, rows: Sequence[Row]) -> str:
    instead = Counter(r.first for r in rows if r.first != name)
    told = ", ".join(f"{other} ({count})" for other, count in instead.most_common())
    return f"| {name} | {len(rows)} | {sum(r.right for r in rows)} | {told} |"


def main() -> None:
    """Print the table; without names, keep it."""
    names = sys.argv[1:]
    table = page(judged(scripts(names)))
    print(table)
    if not names:
        PAGE.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
