"""Results of gates for every test that shows one."""

from __future__ import annotations

from dataclasses import replace

from ampdoctor.finding import Location
from ampdoctor.gate import check
from ampdoctor.gate.baseline import baseline_of
from ampdoctor.gate.policy import Policy, parse_limit
from tests.unit.gate.runs import built, judged
from tests.unit.report.diagnoses import COLLAPSED, HEALTHY, LOST, NOTE, UNDERFLOW, UNTIDY

NASTY = "x]]> <b>&amp; | `code` %0A::error::\x1b[31m\x00\ufffe @team #1 * _ \\ \u202e\n::set-env name=A::b"
"""Everything that some format takes for markup or for a command."""

HOSTILE = replace(
    COLLAPSED,
    run=NASTY,
    verdict=NASTY,
    findings=(
        replace(
            UNDERFLOW,
            summary=NASTY,
            location=Location((NASTY,), source=f"{NASTY}.py:3"),
            evidence=tuple(replace(e, text=NASTY) for e in UNDERFLOW.evidence),
            fixes=tuple(replace(f, title=NASTY, code="```\n" + NASTY, expected=NASTY) for f in UNDERFLOW.fixes),
        ),
    ),
    notices=(NASTY,),
)

_GOOD = baseline_of([judged(built().build()), judged(built(subnormal=12).build())])
_POLICY = Policy(limits=(parse_limit("flushed=1%"), parse_limit("lost_updates=1%")))
_HARMED = built(flushed=40, cosine=0.8, modules=("a", "c" * 3), device="cuda").build()

PASSED = check(built().build(), HEALTHY, Policy(), _GOOD)
FAILED = check(_HARMED, COLLAPSED, _POLICY, _GOOD)
UNCOMPARED = check(built().build(), replace(UNTIDY, findings=(NOTE,)), Policy())
KNOWN = check(built().build(), replace(COLLAPSED, findings=(LOST,)), Policy(), baseline_of([(_HARMED, COLLAPSED)]))
ATTACKED = check(_HARMED, HOSTILE, _POLICY, _GOOD)

RESULTS = {"passed": PASSED, "failed": FAILED, "uncompared": UNCOMPARED, "known": KNOWN, "attacked": ATTACKED}
