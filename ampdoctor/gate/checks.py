"""check(run, diagnosis, policy, baseline) -> GateResult: what of a run is not let pass, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Severity
from ampdoctor.gate.baseline import machine_of
from ampdoctor.gate.metrics import METRICS, Worse
from ampdoctor.gate.readings import WHOLE, read_metrics
from ampdoctor.gate.result import NEWS, Against, FindingCheck, GateResult, MetricCheck, Outcome, Status
from ampdoctor.gate.values import value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.baseline import Band, Baseline, Known
    from ampdoctor.gate.metrics import Metric
    from ampdoctor.gate.policy import Limit, Policy
    from ampdoctor.gate.readings import Reading
    from ampdoctor.trace.run import Run

    Readings = Mapping[tuple[str, str], Reading]

_SITES_NAMED = 5
"""Sites that are named where a limit matches none."""

_FOREIGN = "no site of the baseline is in this run: only the run as a whole was compared"

_ORDER = (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.PASS)


def check(
    run: Run,
    diagnosis: Diagnosis,
    policy: Policy,
    baseline: Baseline | None = None,
    read: Iterable[Reading] | None = None,
) -> GateResult:
    """Compare a run with limits, and with what good runs came to.

    Args:
        run: the run.
        diagnosis: its diagnosis.
        policy: what is let pass.
        baseline: what good runs came to; without one, every finding counts as new.
        read: the run's readings; read from it where left out.
    """
    readings = {(r.metric, r.site): r for r in (read_metrics(run) if read is None else read)}
    known = dict(baseline.findings) if baseline else {}
    findings, fixed = _findings(diagnosis.findings, known, policy)
    compared = _against_baseline(readings, baseline) if baseline else []
    metrics = [*_against_limits(readings, policy.limits), *compared]
    sites, before = _sites(readings), _sites(baseline.bands) if baseline else set()
    foreign = bool(before) and before.isdisjoint(sites)
    return GateResult(
        diagnosis=diagnosis,
        findings=tuple(findings),
        metrics=tuple(sorted(metrics, key=_rank)),
        fixed=tuple(fixed),
        new_sites=tuple(sorted(sites - before)) if baseline else (),
        gone_sites=tuple(sorted(before - sites)),
        warnings=(*([_FOREIGN] if foreign else []), *_warnings(run, diagnosis, baseline, compared)),
        compared=baseline is not None,
        foreign=foreign,
    )


def _rank(made: MetricCheck) -> tuple[int, bool, int, str]:
    """Failures first, of those the run as a whole first, and causes before what follows from them."""
    return _ORDER.index(made.outcome), made.site != WHOLE, [*METRICS].index(made.metric.name), made.site


def _sites(readings: Iterable[tuple[str, str]]) -> set[str]:
    return {site for metric, site in readings if site != WHOLE and METRICS[metric].of_modules}


def _findings(
    found: Sequence[Finding], known: dict[str, Known], policy: Policy
) -> tuple[list[FindingCheck], list[Known]]:
    """Return what becomes of each finding, and the known ones that are gone."""
    counting = [f for f in found if policy.counts(f.code, f.name)]
    left = {fingerprint: k for fingerprint, k in known.items() if policy.counts(k.code, k.name)}
    same = {id(f): left.pop(f.fingerprint) for f in counting if f.fingerprint in left}
    made = []
    for finding in counting:
        status = _of_known(finding, same[id(finding)]) if id(finding) in same else _moved(finding, left)
        news = status in NEWS and policy.fails(finding.severity)
        made.append(FindingCheck(finding, status, Outcome.FAIL if news else Outcome.PASS))
    gone = [k for k in left.values() if k.severity is not Severity.NOTE]
    return sorted(made, key=lambda c: (_ORDER.index(c.outcome), c.finding.severity.rank)), gone


def _of_known(finding: Finding, known: Known) -> Status:
    return Status.WORSE if finding.severity.rank < known.severity.rank else Status.UNCHANGED


def _moved(finding: Finding, left: dict[str, Known]) -> Status:
    """Take a known finding of the same rule that was no milder for the same one at other sites."""
    for fingerprint, known in left.items():
        if known.code == finding.code and known.severity.rank <= finding.severity.rank:
            del left[fingerprint]
            return Status.MOVED
    return Status.NEW


def _against_limits(readings: Readings, limits: Iterable[Limit]) -> Iterable[MetricCheck]:
    for limit in limits:
        metric = limit.metric
        covered = [r for (name, site), r in readings.items() if name == metric.name and limit.covers(site)]
        if not covered:
            why = f"nothing was measured that {limit.text} is about: {metric.doc}{_known_sites(readings, limit)}"
            yield MetricCheck(metric, limit.site, Outcome.FAIL, Against.LIMIT, limit.value, None, None, why)
        for reading in covered:
            beyond = metric.is_worse(reading.value, limit.value)
            is_limit = f"{'at most' if metric.worse is Worse.MORE else 'at least'} {value_text(metric, limit.value)}"
            why = f"{value_text(metric, reading.value)}, {is_limit} is allowed"
            outcome = Outcome.FAIL if beyond else Outcome.PASS
            yield MetricCheck(metric, reading.site, outcome, Against.LIMIT, limit.value, reading, None, why)


def _known_sites(readings: Readings, limit: Limit) -> str:
    """Say which sites a limit on sites could mean."""
    if limit.site == WHOLE:
        return ""
    known = [site for name, site in readings if name == limit.metric.name and site != WHOLE]
    if not known:
        return f" {limit.metric.name} was measured at no site"
    more = f" and {len(known) - _SITES_NAMED} more" if len(known) > _SITES_NAMED else ""
    return f" Known sites: {', '.join(known[:_SITES_NAMED])}{more}"


def _against_baseline(readings: Readings, baseline: Baseline) -> list[MetricCheck]:
    made = []
    for (name, site), band in baseline.bands.items():
        reading = readings.get((name, site))
        if reading is None and site != WHOLE:
            continue  # the site is gone, which is told by itself
        made.append(_compared(name, site, band, reading))
    return [_with_worst_site(each, made) if each.site == WHOLE else each for each in made]


def _with_worst_site(whole: MetricCheck, made: Iterable[MetricCheck]) -> MetricCheck:
    """Name the site at which the metric got worst, where it fails as a whole."""
    sites = [c for c in made if c.metric is whole.metric and c.site != WHOLE and c.outcome is Outcome.FAIL]
    if whole.outcome is not Outcome.FAIL or not sites:
        return whole
    worst = max(sites, key=lambda c: (_excess(c), c.site))
    now = value_text(whole.metric, worst.reading.value) if worst.reading else ""
    return replace(whole, why=f"{whole.why}; most at {worst.site}: {now}")


def _excess(made: MetricCheck) -> float:
    return abs(made.reading.value - made.allowed) if made.reading and made.allowed is not None else 0.0


def _compared(name: str, site: str, band: Band, reading: Reading | None) -> MetricCheck:
    metric = METRICS[name]
    allowed, before = metric.allowed(band.low, band.high), (band.low, band.high)
    was = " to ".join(dict.fromkeys(value_text(metric, v) for v in before))
    if reading is None:
        why = f"not measured any more; it was {was}"
        return MetricCheck(metric, site, Outcome.NOT_MEASURED, Against.BASELINE, allowed, None, before, why)
    failed = allowed is not None and metric.is_worse(reading.value, allowed)
    bound = "" if allowed is None else f", {_up_or_down(metric)} to {value_text(metric, allowed)} counts as noise"
    why = f"{value_text(metric, reading.value)}; it was {was}{bound}"
    outcome = Outcome.FAIL if failed else Outcome.PASS
    return MetricCheck(metric, site, outcome, Against.BASELINE, allowed, reading, before, why)


def _up_or_down(metric: Metric) -> str:
    return "up" if metric.worse is Worse.MORE else "down"


def _warnings(
    run: Run, diagnosis: Diagnosis, baseline: Baseline | None, compared: Iterable[MetricCheck]
) -> Iterable[str]:
    yield from (f"the rule {rule.rule} failed and could not judge: {rule.reason}" for rule in diagnosis.crashed)
    if not diagnosis.examined.examined_steps:
        yield "no step was examined: nothing of the tensors was compared"
    yield from diagnosis.examined.gaps
    if baseline is None:
        return
    now = machine_of(run.info)
    for name, before in baseline.made_on.items():
        if now.get(name, "") != before:
            yield f"{name} differs: the baseline was made with {before}, this run with {now.get(name) or 'none'}"
    graded = [c for c in compared if c.reading is not None and c.site == WHOLE]
    for made in graded:
        was = baseline.bands[made.metric.name, made.site].grade
        if made.reading is not None and made.reading.grade is not was:
            yield f"{made.metric.title}: {was.value} in the baseline, {made.reading.grade.value} now"
    if baseline.runs == 1:
        yield f"the baseline is of {counted(1, 'run')}: how much its numbers differ from run to run is not known"
