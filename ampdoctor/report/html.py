"""A static page that needs no network and no script, to keep as an artifact of a CI job."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ampdoctor.report.gated import (
    STATUS_TEXT,
    changes,
    headline,
    metric_title,
    shown_metrics,
    value_allowed,
    value_before,
    value_now,
)
from ampdoctor.report.layout import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.2rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8884; }
.fail, .error { color: #c4232b; font-weight: 600; }
.warning { color: #9a6700; font-weight: 600; }
@media (prefers-color-scheme: dark) { .fail, .error { color: #ff7b72; } .warning { color: #e3b341; } }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(diagnosis: Diagnosis) -> str:
    """Return the verdict, the findings with evidence and fixes, and what was not examined."""
    parts = [f"<h1>{_e(diagnosis.verdict)}</h1>", f"<p>{_e(diagnosis.precision.sentence)}</p>", _run(diagnosis)]
    parts += [_finding(f, f.severity.value) for f in diagnosis.findings]
    others = [("Rule failed", f"{rule.rule}: {rule.reason}") for rule in diagnosis.crashed]
    others += [("Accepted", f"{i.finding.name}: {i.reason}") for i in diagnosis.ignored]
    others += [("Incomplete", gap) for gap in diagnosis.examined.gaps]
    others += [("Notice", notice) for notice in diagnosis.notices]
    others += [("Nothing found", ", ".join(diagnosis.passed))] if diagnosis.passed else []
    others += [("Not examined", f"{rule.rule}: {rule.reason}") for rule in diagnosis.skipped]
    parts.append(_table(("", ""), others))
    return _page("ampdoctor", parts)


def render_gate(result: GateResult) -> str:
    """Return the result, the findings, the metrics beside those of the baseline, and what else changed."""
    state = "ok" if result.passed else "fail"
    parts = [f'<h1 class="{state}">{_e(headline(result))}</h1>', f"<p>{_e(result.diagnosis.verdict)}</p>"]
    parts.append(_run(result.diagnosis))
    parts += [_finding(made.finding, f"{made.outcome.value}, {STATUS_TEXT[made.status]}") for made in result.findings]
    rows = [
        (made.outcome.value, metric_title(made), value_before(made), value_now(made), value_allowed(made))
        for made in shown_metrics(result.metrics)
    ]
    parts.append(_table(("", "metric", "baseline", "now", "allowed"), rows))
    parts.append(_table(("", ""), changes(result)))
    return _page("ampdoctor check", parts)


def _page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _run(diagnosis: Diagnosis) -> str:
    return f"<p>Run: <code>{_e(diagnosis.run)}</code></p>" if diagnosis.run else ""


def _finding(finding: Finding, label: str) -> str:
    """Return a section: what was found, its evidence, where, and how to mend it."""
    css = label.partition(",")[0]
    lines = [f'<section>\n<h2><span class="{css}">{_e(label)}</span> {_e(finding.name)} ({_e(finding.code)})</h2>']
    lines.append(f"<p>{_e(finding.summary)}</p>")
    if finding.evidence:
        lines.append("<ul>")
        lines += [f"<li>{_e(evidence.text)} ({evidence.grade.value})</li>" for evidence in finding.evidence]
        lines.append("</ul>")
    where = [*([finding.location.source] if finding.location.source else []), *finding.location.sites]
    if where:
        lines.append("<p>Where: " + ", ".join(f"<code>{_e(site)}</code>" for site in where) + "</p>")
    for fix in finding.fixes:
        lines.append(f"<h3>{_e(fix.title)}</h3>\n<p>{_e(fix.expected)} ({fix.grade.value})</p>")
        if fix.code.strip():
            code = "\n".join(clean(line) for line in fix.code.strip("\n").splitlines())
            lines.append(f"<pre><code>{escape(code)}</code></pre>")
    lines += [f"<p>It follows: {_e(c.name)}: {_e(c.summary)}</p>" for c in finding.consequences]
    return "\n".join([*lines, "</section>"])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [
        f'<tr><td class="{_e(row[0])}">' + "</td><td>".join(_e(cell) for cell in row) + "</td></tr>" for row in rows
    ]
    if not body:
        return ""
    titles = "".join(f"<th>{title}</th>" for title in head)
    header = f"<thead><tr>{titles}</tr></thead>\n" if any(head) else ""
    return f"<table>\n{header}<tbody>\n" + "\n".join(body) + "\n</tbody>\n</table>"


def _e(text: str) -> str:
    return escape(clean(text))
