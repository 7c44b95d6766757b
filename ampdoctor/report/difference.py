"""What changed between two runs: for people, for a comment on a pull request, and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.wording import counted
from ampdoctor.gate.difference import Direction
from ampdoctor.gate.readings import WHOLE
from ampdoctor.gate.result import Status
from ampdoctor.gate.values import value_text
from ampdoctor.report.gate_page import table
from ampdoctor.report.gated import STATUS_TEXT, listed
from ampdoctor.report.json import SCHEMA_VERSION, dumped, finding_document
from ampdoctor.report.layout import PLAIN_WIDTH, Page
from ampdoctor.report.markdown import escaped
from ampdoctor.report.markdown import table as markdown_table

if TYPE_CHECKING:
    from ampdoctor.gate.difference import Change, Difference
    from ampdoctor.gate.readings import Reading

SITES_SHOWN = 10
"""Sites that got worse, or better, which are shown; the rest are counted, and all are in the JSON."""

HEAD = ("", "metric", "before", "now", "change", "grade")


def sentence(difference: Difference) -> str:
    """Return the difference in one sentence."""
    whole = [c for c in difference.changes if c.site == WHOLE]
    worse, better = (
        [c.metric.title for c in whole if c.direction is direction] for direction in (Direction.WORSE, Direction.BETTER)
    )
    new = [made.finding.name for made in difference.findings if made.status in (Status.NEW, Status.WORSE)]
    parts = [f"worse: {', '.join(worse)}"] if worse else []
    parts += [f"better: {', '.join(better)}"] if better else []
    parts += [f"new: {', '.join(new)}"] if new else []
    parts += [f"fixed: {', '.join(known.name for known in difference.fixed)}"] if difference.fixed else []
    return "; ".join(parts) or "no difference beyond noise"


def page(difference: Difference, width: int = PLAIN_WIDTH) -> Page:
    """Return the difference as a page."""
    paper = Page(width)
    bad = any(c.direction is Direction.WORSE and c.metric.absolute is not None for c in difference.changes)
    paper.say(sentence(difference), style="bold red" if bad else "bold")
    paper.blank()
    paper.say(f"{difference.before.run}: {difference.before.verdict}", label="Before  ", label_style="bold")
    paper.say(f"{difference.now.run}: {difference.now.verdict}", label="Now     ", label_style="bold")
    paper.blank()
    table(paper, [HEAD, *(_row(change) for change in _shown(difference))])
    if _hidden(difference):
        paper.say(f"and {counted(_hidden(difference), 'more site')}", indent=2, style="dim")
    paper.blank()
    for title, text in _others(difference):
        paper.say(text, label=f"{title:11}", label_style="bold")
    return paper


def markdown(difference: Difference) -> str:
    """Return the difference as Markdown."""
    parts = [f"### ampdoctor compare: {escaped(sentence(difference))}"]
    parts += [f"Before: {escaped(difference.before.verdict)}", f"Now: {escaped(difference.now.verdict)}"]
    parts.append(markdown_table(HEAD, [_row(change) for change in _shown(difference)]))
    parts += [f"{title}: {escaped(text)}" for title, text in _others(difference)]
    return "\n\n".join(part for part in parts if part) + "\n"


def document(difference: Difference) -> str:
    """Return the difference as JSON."""
    return dumped({
        "schema_version": SCHEMA_VERSION,
        "before": {"run": difference.before.run, "verdict": difference.before.verdict},
        "now": {"run": difference.now.run, "verdict": difference.now.verdict},
        "difference": sentence(difference),
        "changes": [_change(change) for change in difference.changes],
        "findings": [{"status": made.status, **finding_document(made.finding)} for made in difference.findings],
        "fixed": [asdict(known) for known in difference.fixed],
        "new_sites": difference.new_sites,
        "gone_sites": difference.gone_sites,
        "machines": [{"name": name, "before": one, "now": other} for name, one, other in difference.machines],
    })  # fmt: skip


def _change(change: Change) -> dict[str, Any]:
    return {
        "metric": change.metric.name,
        "site": change.site,
        "unit": change.metric.unit,
        "before": change.before.value if change.before else None,
        "now": change.now.value if change.now else None,
        "relative": change.relative,
        "direction": change.direction,
        "grade": change.grade,
    }


def _sites(difference: Difference) -> list[Change]:
    """Return the sites at which something got worse, or better."""
    notable = (Direction.WORSE, Direction.BETTER)
    return [c for c in difference.changes if c.site != WHOLE and c.direction in notable]


def _shown(difference: Difference) -> list[Change]:
    """Return all changes of the runs as a whole, and the largest of their sites, worst first."""
    sites = {id(c) for c in sorted(_sites(difference), key=lambda c: -abs(c.size))[:SITES_SHOWN]}
    return [c for c in difference.changes if c.site == WHOLE or id(c) in sites]


def _hidden(difference: Difference) -> int:
    return max(0, len(_sites(difference)) - SITES_SHOWN)


def _row(change: Change) -> tuple[str, ...]:
    title = change.metric.title if change.site == WHOLE else f"{change.metric.title} of {change.site}"
    relative = change.relative
    grown = "-" if relative is None or abs(relative) < 5e-4 else f"{100 * relative:+.3g} %"
    if relative is not None and relative > 10:
        grown = f"x {relative + 1:.3g}"
    return (
        change.direction.value,
        title,
        _value(change, change.before),
        _value(change, change.now),
        grown,
        change.grade.value,
    )


def _value(change: Change, reading: Reading | None) -> str:
    return "-" if reading is None else value_text(change.metric, reading.value)


def _others(difference: Difference) -> list[tuple[str, str]]:
    """Return findings, sites and machines, as (title, sentence)."""
    said = [
        (STATUS_TEXT[made.status].partition(",")[0].capitalize(), f"{made.finding.name}: {made.finding.summary}")
        for made in difference.findings
    ]
    said += [("Fixed", f"{known.name}: {known.summary}") for known in difference.fixed]
    for title, sites in (("New sites", difference.new_sites), ("Sites gone", difference.gone_sites)):
        said += [(title, listed(sites))] if sites else []
    return said + [
        ("Differs", f"{name}: {one or 'none'}, now {other or 'none'}") for name, one, other in difference.machines
    ]
