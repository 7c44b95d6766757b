"""The gate: what it must hold to whatever the runs are, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.finding import Location, Severity
from ampdoctor.gate import check
from ampdoctor.gate.baseline import baseline_of, read_baseline, text_of
from ampdoctor.gate.metrics import METRICS
from ampdoctor.gate.policy import Policy, parse_limit
from ampdoctor.gate.readings import WHOLE, read_metrics
from ampdoctor.gate.result import Outcome, Status
from ampdoctor.trace.run import Run
from tests.unit.gate.runs import built, judged
from tests.unit.report.diagnoses import LOST, UNDERFLOW

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult

RUNS = st.fixed_dictionaries(
    {
        "flushed": st.integers(0, 100),
        "subnormal": st.integers(0, 100),
        "skipped": st.integers(0, 20),
        "scale": st.integers(-10, 24).map(lambda exponent: 2.0**exponent),
        "cosine": st.floats(-1.0, 1.0),
        "nan_losses": st.integers(0, 20),
        "memory": st.integers(0, 1 << 40),
        "wall_ms": st.floats(0.001, 1e6),
    }
)
WORSE = {
    "flushed": lambda value, by: min(100, value + by),
    "subnormal": lambda value, by: min(100, value + by),
    "cosine": lambda value, by: max(-1.0, value - by / 50),
    "nan_losses": lambda value, by: min(20, value + by),
    "memory": lambda value, by: value * (1 + by),
    "wall_ms": lambda value, by: value * (1 + by),
}
"""How each grows worse by itself. With skips and scales other metrics change too."""

LIMITS = tuple(map(parse_limit, ("flushed=30%", "subnormal@a*=40%", "cosine=0.5", "memory=1GiB", "step_ms=1000")))


def gated(run: dict[str, Any], good: dict[str, Any], policy: Policy | None = None) -> GateResult:
    return check(*judged(built(**run).build()), policy or Policy(), baseline_of([judged(built(**good).build())]))


@given(RUNS)
@settings(max_examples=30, deadline=None)
def test_a_run_passes_its_own_baseline(columns: dict[str, Any]) -> None:
    assert gated(columns, columns).passed


@given(RUNS)
@settings(max_examples=30, deadline=None)
def test_it_also_passes_the_one_read_back_from_its_file(tmp_path_factory: Any, columns: dict[str, Any]) -> None:
    run = judged(built(**columns).build())
    path: Path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    path.write_text(text_of(baseline_of([run])), encoding="utf-8")
    result = check(*run, Policy(), read_baseline(path))
    assert result.passed
    assert not any(made.outcome is Outcome.NOT_MEASURED for made in result.metrics)


@given(RUNS, RUNS, st.sampled_from(sorted(WORSE)), st.integers(1, 50))
@settings(max_examples=80, deadline=None)
def test_a_worse_metric_never_turns_a_fail_into_a_pass(
    run: dict[str, Any], good: dict[str, Any], which: str, by: int
) -> None:
    policy = Policy(limits=LIMITS)
    before = gated(run, good, policy)
    after = gated({**run, which: WORSE[which](run[which], by)}, good, policy)
    assert before.passed or not after.passed


@given(st.sampled_from(sorted(METRICS)), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10), st.floats(0, 10))
def test_a_worse_value_is_never_allowed_where_a_better_is_not(
    name: str, one: float, other: float, value: float, more: float
) -> None:
    metric = METRICS[name]
    allowed = metric.allowed(min(one, other), max(one, other))
    if allowed is None:
        return
    worse = value + more if metric.worse.value == "more" else value - more
    assert metric.is_worse(worse, allowed) or not metric.is_worse(value, allowed)
    assert metric.is_worse(float("nan"), allowed)
    assert not metric.is_worse(one, allowed)


@given(st.lists(RUNS, min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_more_runs_and_their_order_never_make_a_baseline_stricter(
    runs: list[dict[str, Any]], shuffle: random.Random
) -> None:
    judgements = [judged(built(**columns).build()) for columns in runs]
    shuffled = shuffle.sample(judgements, len(judgements))
    baseline = baseline_of(judgements)
    assert text_of(replace(baseline_of(shuffled), made_on={})) == text_of(replace(baseline, made_on={}))
    for run in judgements:
        assert check(*run, Policy(), baseline).passed


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_order_of_rows_and_columns_does_not_matter(shuffle: random.Random) -> None:
    run = built(flushed=7, subnormal=30, cosine=0.93).build()

    def load(name: str) -> tuple[Any, list[str]]:
        table = run.table(name)
        columns = shuffle.sample(table.column_names, len(table.column_names))
        rows = list(range(table.num_rows))
        if name in {"memory", "tensors", "twins"}:  # steps are a sequence
            shuffle.shuffle(rows)
        return (table.select(columns).take(rows) if rows else table), []

    mixed = Run(run.info, load)
    assert {(r.metric, r.site, r.value) for r in read_metrics(mixed)} == {
        (r.metric, r.site, r.value) for r in read_metrics(run)
    }


def test_a_regression_is_told_with_the_worst_site() -> None:
    result = gated({"flushed": 40}, {})
    whole = next(made for made in result.failures if getattr(made, "site", None) == WHOLE)
    assert "40.0 %; it was 0 %, up to 2.0 % counts as noise; most at" in getattr(whole, "why", "")


def test_what_spreads_between_good_runs_is_noise() -> None:
    good = baseline_of([judged(built(subnormal=n).build()) for n in (10, 30)])
    assert check(*judged(built(subnormal=45).build()), Policy(), good).passed
    assert not check(*judged(built(subnormal=60).build()), Policy(), good).passed


def test_time_alone_never_fails_but_a_limit_does() -> None:
    assert gated({"wall_ms": 5000.0}, {}).passed
    assert not gated({"wall_ms": 5000.0}, {}, Policy(limits=(parse_limit("step_ms=100"),))).passed


def test_a_limit_on_what_was_not_measured_fails() -> None:
    result = gated({}, {}, Policy(limits=(parse_limit("lost_updates=1%"), parse_limit("flushed@nowhere.*=1%"))))
    assert [made.reading for made in result.failures if hasattr(made, "reading")] == [None, None]


def test_renamed_modules_are_told_and_do_not_fail() -> None:
    result = gated({"modules": ("a", "c")}, {})
    assert result.passed
    assert (result.new_sites, result.gone_sites) == (("c.out", "c.weight"), ("b.out", "b.weight"))


def test_another_device_is_told_by_name() -> None:
    warnings = gated({"device": "cuda: NVIDIA H100"}, {}).warnings
    assert "device differs: the baseline was made with cpu, this run with cuda: NVIDIA H100" in warnings


def found(*findings: Finding, known: tuple[Finding, ...] = (), policy: Policy | None = None) -> GateResult:
    run, diagnosis = judged(built().build())
    baseline = baseline_of([(run, replace(diagnosis, findings=known))])
    return check(run, replace(diagnosis, findings=findings), policy or Policy(), baseline)


ELSEWHERE = replace(UNDERFLOW, location=Location(("other.weight (weight_grad)",)))
MILDER = replace(UNDERFLOW, severity=Severity.NOTE)


@pytest.mark.parametrize(
    ("now", "known", "status", "passed"),
    [
        (UNDERFLOW, (), Status.NEW, False),
        (UNDERFLOW, (UNDERFLOW,), Status.UNCHANGED, True),
        (UNDERFLOW, (MILDER,), Status.WORSE, False),
        (MILDER, (UNDERFLOW,), Status.UNCHANGED, True),
        (ELSEWHERE, (UNDERFLOW,), Status.MOVED, True),
        (LOST, (UNDERFLOW,), Status.NEW, False),
    ],
)
def test_findings_by_their_fingerprints(now: Finding, known: tuple[Finding, ...], status: Status, passed: bool) -> None:
    result = found(now, known=known)
    assert [made.status for made in result.findings] == [status]
    assert result.passed is passed


def test_a_fault_at_one_more_place_is_new() -> None:
    result = found(UNDERFLOW, ELSEWHERE, known=(UNDERFLOW,))
    assert {made.finding: made.status for made in result.findings}[ELSEWHERE] is Status.NEW
    assert not result.passed


def test_what_is_gone_is_fixed() -> None:
    assert [known.name for known in found(known=(UNDERFLOW,)).fixed] == ["gradient-underflow"]


@pytest.mark.parametrize(
    ("policy", "passed"),
    [
        (Policy(fail_on=Severity.ERROR), True),
        (Policy(fail_on=None), True),
        (Policy(ignore=("lost-*",)), True),
        (Policy(select=("amp1*",)), True),
        (Policy(select=("AMP0*",)), False),
    ],
)
def test_which_findings_count(policy: Policy, passed: bool) -> None:
    assert found(LOST, policy=policy).passed is passed
