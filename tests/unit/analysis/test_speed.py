"""Where a step's time goes, worked out from rows whose times are made up."""

from __future__ import annotations

import pytest

from ampdoctor.analysis.speed import Speed, speeds, surely_faster, timed, times_as_fast
from ampdoctor.trace.builder import RunBuilder


def _speed(device_ms: float | None = None) -> Speed:
    run = RunBuilder().step()
    half = {"dtype_in": "bfloat16", "dtype_out": "bfloat16", "autocast": "bfloat16"}
    run.timing("aten.mm", "a", host_ms=4.0, device_ms=device_ms, misaligned=1, **half)
    run.timing("aten.mm", "b", host_ms=2.0, **half)
    run.timing("aten._to_copy", "a", dtype_in="float32", dtype_out="bfloat16", autocast="bfloat16", host_ms=1.0)
    run.timing("aten._softmax", "b", dtype_in="float32", dtype_out="float32", autocast="bfloat16", host_ms=2.0)
    run.timing("aten.add", None, direction="step", dtype_in="float32", dtype_out="float32", autocast=None, host_ms=1.0)
    (found,) = speeds(run.build())
    return found


def test_shares_are_of_the_time_of_all_operations() -> None:
    speed = _speed()
    assert speed.total_ms == 10.0
    shares = [speed.share(rows) for rows in (speed.in_half, speed.casts, speed.kept_fp32, speed.misaligned)]
    assert shares == pytest.approx([0.6, 0.1, 0.2, 0.4])


def test_groups_are_longest_first_and_leave_out_what_has_no_name() -> None:
    speed = _speed()
    assert [(name, ms) for name, ms, _ in speed.grouped(lambda row: row.module)] == [("a", 5.0), ("b", 4.0)]
    assert speed.grouped(lambda row: row.op)[0] == ("aten.mm", 6.0, 2)


def test_where_the_device_was_timed_the_host_does_not_count() -> None:
    speed = _speed(device_ms=3.0)
    assert (speed.on_device, speed.total_ms) == (True, 3.0)


def test_a_cast_of_whole_numbers_is_none() -> None:
    run = RunBuilder().step().timing("aten._to_copy", dtype_in=None, dtype_out="float32")
    assert speeds(run.build())[0].casts == []


def test_a_step_without_any_time_has_no_shares() -> None:
    run = RunBuilder().step().timing("aten.mm", host_ms=0.0)
    (speed,) = speeds(run.build())
    assert speed.share(speed.rows) == 0.0


def test_faster_is_only_what_is_no_noise() -> None:
    run = RunBuilder().step()
    run.pace("fp32", wall_ms=20.0, fastest_ms=19.0, slowest_ms=22.0)
    run.pace("bf16", own=True, wall_ms=10.0, fastest_ms=9.0, slowest_ms=18.0)
    run.pace("fp16", wall_ms=17.0, fastest_ms=16.0, slowest_ms=21.0)
    run.pace("none", declined="the weights are in half")
    paces = timed(run.build())
    assert list(paces) == ["fp32", "bf16", "fp16"]
    assert surely_faster(paces["bf16"], paces["fp32"])
    assert not surely_faster(paces["fp16"], paces["fp32"])
    assert times_as_fast(paces["bf16"], paces["fp32"]) == 2.0
