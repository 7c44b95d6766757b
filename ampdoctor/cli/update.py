"""`ampdoctor check --update`: a change of a run's numbers that is meant, accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor import gate
from ampdoctor.analysis.wording import counted
from ampdoctor.cli.baselines import ONE_RUN, baseline_of_good, write_baseline
from ampdoctor.errors import AmpDoctorError
from ampdoctor.gate.baseline import read_baseline
from ampdoctor.gate.metrics import METRICS
from ampdoctor.gate.readings import WHOLE
from ampdoctor.gate.result import Against, FindingCheck
from ampdoctor.gate.values import value_text
from ampdoctor.report.gated import reason
from ampdoctor.report.terminal import console, tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ampdoctor.gate.baseline import Band, Baseline
    from ampdoctor.gate.policy import Policy
    from ampdoctor.gate.result import GateResult
    from ampdoctor.trace.run import Run

_LISTED = 10
"""Changed numbers that are told one by one."""


def updated(result: GateResult, run: Run, policy: Policy, old: Baseline | None, path: Path) -> GateResult:
    """Write the baseline anew, say what changed, and return what a check against it comes to.

    Raises:
        AmpDoctorError: the run fails by a finding or a limit, which no baseline can make good, or a rule failed.
    """
    _must_be_good(result)
    new = baseline_of_good([(run, result.diagnosis)])
    write_baseline(new, path, force=True)
    written, to = read_baseline(path), console(stderr=True)
    tell(f"{path} has been written anew: {_counts(old, written)}", to)
    lines = list(_changed(old, written))
    for line in lines[:_LISTED]:
        tell(f"  {line}", to)
    if len(lines) > _LISTED:
        tell(f"  and {len(lines) - _LISTED} more", to)
    tell(f"{ONE_RUN}: ampdoctor baseline RUN RUN -o {path} --force", to)
    return gate.check(run, result.diagnosis, policy, new)


def _must_be_good(result: GateResult) -> None:
    bad = [m for m in result.failures if isinstance(m, FindingCheck) or m.against is Against.LIMIT]
    if bad:
        hint = "mend the run, or accept it: [[ignore]] for a finding, another --max for a limit; docs/ci.md has both"
        raise AmpDoctorError(f"the baseline stays as it is: this run fails: {reason(bad[0])}", hint=hint)
    if result.diagnosis.crashed:
        rules = ", ".join(rule.rule for rule in result.diagnosis.crashed)
        raise AmpDoctorError(f"the baseline stays as it is: {rules} could not judge", hint="see the report above")


def _counts(old: Baseline | None, new: Baseline) -> str:
    before = old.bands if old else {}
    counts = {
        "changed": sum(key in before and before[key] != band for key, band in new.bands.items()),
        "new": sum(key not in before for key in new.bands),
        "gone": sum(key not in new.bands for key in before),
    }
    return ", ".join(f"{counted(count, 'number')} {what}" for what, count in counts.items())


def _changed(old: Baseline | None, new: Baseline) -> Iterator[str]:
    """Return a line for each number that changed, those of the run as a whole first."""
    before = old.bands if old else {}
    changed = [key for key, band in new.bands.items() if key in before and before[key] != band]
    for name, site in sorted(changed, key=lambda key: (key[1] != WHOLE, [*METRICS].index(key[0]), key[1])):
        title = METRICS[name].title + (f" of {site}" if site != WHOLE else "")
        yield f"{title}: {_text(name, before[name, site])} -> {_text(name, new.bands[name, site])}"


def _text(name: str, band: Band) -> str:
    return " to ".join(dict.fromkeys(value_text(METRICS[name], value) for value in (band.low, band.high)))
