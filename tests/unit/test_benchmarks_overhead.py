"""The benchmark of the overhead: what it measures by default, and its arithmetic."""

from __future__ import annotations

import pytest

from benchmarks import kernels
from benchmarks.overhead.__main__ import parsed, plans, why_not
from benchmarks.overhead.measure import Plan, Result, Times
from benchmarks.overhead.table import COLUMNS, heading, row, size
from benchmarks.overhead.tools import NOTHING, OWN, PEERS, TOOLS

PLAN = Plan("mlp", "fp32", "vitals", "small", threads=1, steps=4, block=2, pairs=3, seconds=1.0)


def test_ratios_are_of_a_step() -> None:
    bare, tool = Times(wall=1.0, cpu=0.5, steps=2), Times(wall=3.0, cpu=3.0, steps=4)
    assert tool.over(bare) == (1.5, 3.0)
    assert bare + tool == Times(4.0, 3.5, 6)


def test_each_training_begins_with_nothing() -> None:
    found = list(plans(parsed(["--workload", "mlp", "--precision", "fp16", "--tool", "default"])))
    assert [plan.tool for plan in found] == [NOTHING, "default"]


def test_peers_are_measured_in_fp32_by_default() -> None:
    by_precision: dict[str, set[str]] = {}
    for plan in plans(parsed(["--workload", "mlp"])):
        by_precision.setdefault(plan.precision, set()).add(plan.tool)
    assert by_precision["fp32"] == set(TOOLS)
    assert by_precision["bf16"] == by_precision["fp16"] == {NOTHING, *OWN}


def test_twins_are_skipped_where_nothing_is_in_half() -> None:
    twins = [Plan("mlp", "fp32", name, "small", 1, 4, 2, 3, 1.0) for name in ("local twins", "carried twin")]
    assert all(why_not(plan) == "skipped: nothing is in half precision" for plan in twins)


def test_a_peer_that_is_not_installed_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.overhead.__main__.find_spec", lambda _: None)
    plan = Plan("mlp", "fp32", "wandb", "small", 1, 4, 2, 3, 1.0)
    assert why_not(plan) == "skipped: wandb is not installed"
    assert {name for name, tool in PEERS.items() if tool.package is None} == {"hand-rolled", "anomaly"}


def test_a_row_has_a_cell_for_each_column() -> None:
    whole = Result(wall=[1.5], cpu=[1.25], later=[1.05], bare_ms=80.0, peak_bytes=3_000_000, examined=(3, 40))
    rows = [row(PLAN, result, 1_000_000) for result in (Result(missing="skipped: why"), whole)]
    assert {line.count("|") for line in (*heading().splitlines(), *rows)} == {len(COLUMNS) + 1}
    assert "1.500x | second half 1.05x | 1.250x | 1 | 80.0 ms | 2 MB | 0 B | 3 of 40" in rows[1]


def test_the_spread_is_that_of_the_pairs() -> None:
    assert "1.100x | 1.00 to 1.20" in row(PLAN, Result(wall=[1.2, 1.0, 1.1], cpu=[1.0]), None)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1500, "1.5 kB"), (2_500_000, "2.5 MB")])
def test_sizes_are_for_people(count: float, text: str) -> None:
    assert size(count) == text


def test_kernel_ratios_are_of_the_same_round() -> None:
    times = {kernels.CLONE: [1e-9, 2e-9, 4e-9], kernels.ABSMAX: [1e-9, 1e-9, 1e-9], "ours": [2e-9, 4e-9, 8e-9]}
    assert kernels.found(times, "ours", 1) == pytest.approx((4.0, 2.0, 4.0))
