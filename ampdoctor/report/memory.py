"""Where a step's memory went, for people and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.memory.layouts import COMPONENTS
from ampdoctor.analysis.memory.ledgers import PEAK, by, total
from ampdoctor.analysis.memory.saved import saved_sentence, title
from ampdoctor.analysis.speed import SETTINGS
from ampdoctor.analysis.wording import bytes_text, percent
from ampdoctor.finding import Grade
from ampdoctor.formats import title_of_dtype
from ampdoctor.report.json import SCHEMA_VERSION
from ampdoctor.report.layout import PLAIN_WIDTH, Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.analysis.memory.advice import Advice
    from ampdoctor.analysis.memory.layouts import Layout
    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.schema import MemoryRow, PaceRow

_BAR = 20
"""Columns of a bar that stands for all that lives."""

_LINES = 6
"""Entries of one branch that are listed; what follows is added up."""

_NAMES = {"forward": "after forward", "backward": "after backward", "step": "after step", PEAK: PEAK}


def document(
    ledger: Ledger, layouts: Sequence[Layout], advised: Sequence[Advice], measured: Sequence[PaceRow], run: str
) -> str:
    """Return it as JSON, in bytes."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "step": ledger.step,
        "device": ledger.device,
        "phases": {phase: _phase(ledger, phase) for phase in ledger.phases},
        "layouts": [_layout(layout) for layout in layouts],
        "saved": saved_sentence(layouts),
        "measured_kept": {row.setting: row.kept_bytes for row in measured},
        "advice": [
            {
                "name": a.name,
                "text": a.text,
                "saves_bytes": a.saves_bytes,
                "costs_ms": a.costs_ms,
                "grade": a.grade.value,
            }
            for a in advised
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _phase(ledger: Ledger, phase: str) -> dict[str, Any]:
    return {
        "bytes": ledger.total(phase),
        "components": ledger.components(phase),
        "allocated_bytes": ledger.allocated(phase),
        "reserved_bytes": ledger.reserved(phase),
        "unattributed_bytes": ledger.unattributed(phase),
        "overhead_bytes": ledger.overhead(phase),
        "entries": [
            {
                "component": r.component, "kind": r.kind, "module": r.module, "dtype": r.dtype, "bytes": r.bytes,
                "storages": r.storages,
            }
            for r in sorted(ledger.at(phase), key=lambda r: -r.bytes)
        ],
    }  # fmt: skip


def _layout(layout: Layout) -> dict[str, Any]:
    return {
        "layout": layout.name,
        "own": layout.own,
        "grade": layout.grade.value,
        "phase": layout.phase,
        "peak_bytes": layout.peak_bytes,
        "components": {name: size.bytes for name, size in layout.components.items()},
        "grades": {name: size.grade.value for name, size in layout.components.items()},
    }


def page(
    ledger: Ledger,
    phase: str,
    layouts: Sequence[Layout],
    advised: Sequence[Advice],
    measured: Sequence[PaceRow],
    run: str,
    width: int = PLAIN_WIDTH,
) -> Page:
    """Return it as a page: the moments side by side, one of them as a tree, other layouts, and advice."""
    paper = Page(width)
    paper.say(f"Step {ledger.step}: {bytes_text(ledger.total(PEAK))} at the peak on {ledger.device}.", style="bold")
    paper.say(run, label="Run   ", label_style="bold") if run else None
    _moments(paper, ledger)
    _tree(paper, ledger, phase)
    _layouts(paper, layouts)
    _measured(paper, measured)
    _advice(paper, advised)
    return paper


def _moments(paper: Page, ledger: Ledger) -> None:
    present = [c for c in COMPONENTS if any(r.component == c for r in ledger.rows)]
    rows = [(title(c), [total(ledger.at(phase, c)) for phase in ledger.phases]) for c in present]
    rows.append(("all", [ledger.total(phase) for phase in ledger.phases]))
    lines = [("", [_NAMES[phase] for phase in ledger.phases])]
    lines += [(name, [_bytes(size) for size in sizes]) for name, sizes in rows]
    if any(ledger.allocated(phase) is not None for phase in ledger.phases):
        lines += [
            ("allocated", [_bytes(ledger.allocated(phase)) for phase in ledger.phases]),
            ("unattributed", [_bytes(ledger.unattributed(phase)) for phase in ledger.phases]),
            ("reserved, not in use", [_bytes(ledger.overhead(phase)) for phase in ledger.phases]),
        ]
    _table(paper, "", lines)
    if ledger.allocated(ledger.phases[0]) is not None and ledger.allocated(PEAK) is None:
        paper.say(
            "The allocator was at its highest before this step: of its own peak here nothing is known.", style="dim"
        )


def _bytes(size: int | None) -> str:
    if size is None:
        return "?"
    return f"-{bytes_text(-size)}" if size < 0 else bytes_text(size) if size else "-"


def _table(paper: Page, heading: str, lines: Sequence[tuple[str, Sequence[str]]]) -> None:
    first = max(len(heading), *(len(name) for name, _ in lines))
    widths = [max(len(cells[n]) for _, cells in lines) for n in range(len(lines[0][1]))]
    paper.blank()
    for number, (name, cells) in enumerate(lines):
        text = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        paper.line(f"{(heading if not number else name):<{first}}  {text}", style="" if number else "bold")


def _tree(paper: Page, ledger: Ledger, phase: str) -> None:
    whole = max(ledger.total(phase), 1)
    paper.blank()
    paper.say(f"{_NAMES[phase]}, largest first", style="bold")
    for component, size in ledger.components(phase).items():
        rows = ledger.at(phase, component)
        _line(paper, f"{title(component)}{_one_dtype(component, rows)}", size, whole, 0)
        if component == "activations":
            for dtype, held in by(rows, "dtype"):
                _line(paper, title_of_dtype(str(dtype)), held, whole, 1)
                _branch(paper, by((r for r in rows if r.dtype == dtype), "module"), whole, 2)
        elif component == "optimizer":
            _branch(paper, _kinds(rows), whole, 1)
        elif len(dtypes := by(rows, "dtype")) > 1:
            _branch(paper, [(title_of_dtype(str(dtype)), held) for dtype, held in dtypes], whole, 1)


def _one_dtype(component: str, rows: Sequence[MemoryRow]) -> str:
    """Return the dtype of a component that has no branches."""
    dtypes = {row.dtype for row in rows}
    if component in {"activations", "optimizer"} or len(dtypes) > 1:
        return ""
    return f" {title_of_dtype(str(dtypes.pop()))}"


def _kinds(rows: Iterable[MemoryRow]) -> list[tuple[str | None, int]]:
    named = [(f"{r.kind} {title_of_dtype(str(r.dtype))}", r.bytes) for r in rows]
    return sorted(((name, size) for name, size in named), key=lambda entry: -entry[1])


def _branch(paper: Page, entries: Sequence[tuple[str | None, int]], whole: int, depth: int) -> None:
    for name, size in entries[:_LINES]:
        _line(paper, "outside of modules" if name is None else name or "the model itself", size, whole, depth)
    if rest := entries[_LINES:]:
        _line(paper, f"and {len(rest)} more", sum(size for _, size in rest), whole, depth)


def _line(paper: Page, name: str, size: int, whole: int, depth: int) -> None:
    share = size / whole
    bar = ("█" * round(share * _BAR)).ljust(_BAR)
    paper.line(f"{bar}  {percent(share):>8}  {bytes_text(size):>10}  {'  ' * depth}{name}")


def _layouts(paper: Page, layouts: Sequence[Layout]) -> None:
    shown = [c for c in COMPONENTS if any(layout.components[c].bytes for layout in layouts)]
    lines: list[tuple[str, Sequence[str]]] = [("", [*(f"{x.name}{' (run)' if x.own else ''}" for x in layouts)])]
    lines.append(("peak", [_graded(x.peak_bytes, x.grade) for x in layouts]))
    lines += [(title(c), [_graded(x.components[c].bytes, x.components[c].grade) for x in layouts]) for c in shown]
    _table(paper, "the same step in", lines)
    paper.say("~ estimated from what was recorded; all else was observed, and stays the same there.", style="dim")
    paper.blank()
    paper.say(saved_sentence(layouts))


def _graded(size: int, grade: Grade) -> str:
    return f"~{bytes_text(size)}" if size and grade is not Grade.OBSERVED else _bytes(size)


def _measured(paper: Page, rows: Sequence[PaceRow]) -> None:
    """Say what the modules keep in each precision, where they were executed again."""
    if rows:
        each = (f"{SETTINGS.get(r.setting, r.setting)} {bytes_text(r.kept_bytes or 0)}" for r in rows)
        paper.blank()
        paper.say(
            f"Kept for the backward pass by the modules of step {rows[0].step}, executed again in each precision: "
            f"{', '.join(each)} (measured; half copies of weights included)."
        )


def _advice(paper: Page, advised: Sequence[Advice]) -> None:
    if not advised:
        return
    paper.blank()
    paper.say("What would take less (estimated)", style="bold")
    for each in advised:
        paper.say(each.text, label="- ", indent=0)
