"""Root causes, and what merely follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule


def root_findings(
    findings: Sequence[Finding], rules: Sequence[Rule], examined: Sequence[int] = (), harmed: Collection[int] = ()
) -> tuple[Finding, ...]:
    """Fold every finding under the root that explains it, and return the roots, worst and earliest first.

    A finding is a consequence where its rule names another's in `after` and that one was seen no later: by the first
    of the `examined` steps after it at the latest, for what happens on other steps can't be seen. What begins on one of
    the `harmed` steps shows on those alone: where two models take turns, steps of the other say nothing. Chains end at
    the first cause; a finding without a step is taken to have been there from the start.
    """
    harmed_and_seen = [step for step in examined if step in harmed]

    def latest(start: int) -> int:
        seen = harmed_and_seen if start in harmed else examined
        return min((step for step in seen if step >= start), default=start)

    after = {rule.name: rule.after for rule in rules}
    cause = {id(f): _cause(f, findings, after, latest(_start(f))) for f in findings}
    root = {id(f): _root(f, cause) for f in findings}
    roots = [f for f in findings if root[id(f)] is f]
    folded = [replace(r, consequences=_sorted(f for f in findings if f is not r and root[id(f)] is r)) for r in roots]
    return _sorted(folded)


def _root(finding: Finding, cause: dict[int, Finding | None]) -> Finding:
    chain = [finding]
    while (above := cause[id(chain[-1])]) is not None:
        if any(above is f for f in chain):
            # Two that explain each other: the worst and earliest of them stands for both.
            start = next(i for i, f in enumerate(chain) if f is above)
            return min(chain[start:], key=_order)
        chain.append(above)
    return chain[-1]


def _cause(
    finding: Finding, findings: Sequence[Finding], after: dict[str, tuple[str, ...]], latest: int
) -> Finding | None:
    candidates = [
        f
        for f in findings
        if f is not finding
        and f.name in after.get(finding.name, ())
        and f.severity.rank <= finding.severity.rank
        and _start(f) <= latest
    ]
    return min(candidates, key=_order, default=None)


def _start(finding: Finding) -> int:
    return -1 if finding.location.first_step is None else finding.location.first_step


def _order(finding: Finding) -> tuple[int, int, str]:
    return finding.severity.rank, _start(finding), finding.code


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=_order))
