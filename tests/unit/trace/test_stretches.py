"""Of very many calls stretches are judged, cut out where nobody who follows them in order can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.analysis.calls.stepping import taken_steps
from ampdoctor.engine import diagnose
from ampdoctor.trace import stretches
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.run import Run, open_run
from ampdoctor.trace.schema import TABLES, CallRow
from ampdoctor.trace.selection import EACH_END
from ampdoctor.trace.stretches import ALIKE, CALLS, KINDS, judged_calls
from ampdoctor.trace.writer import TraceWriter, prepare_folder
from tests.unit.trace.rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    Step = list[tuple[str, dict[str, Any]]]

STEPS = 6000
PLAIN: Step = [("zero_grad", {"target": "a"}), ("backward", {}), ("optimizer_step", {"target": "a"})]


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "CALLS", 2400)


def _table(steps: list[Step]) -> pa.Table:
    builder = RunBuilder()
    for calls in steps:
        builder.step()
        for name, columns in calls:
            builder.call(name, **columns)
    return builder.build().table("calls")


def _judged(table: pa.Table, examined: tuple[int, ...] = ()) -> list[int]:
    return sorted(judged_calls(table, examined)["step"].unique().to_pylist())


def test_few_calls_are_judged_whole() -> None:
    table = _table([PLAIN] * 300)
    assert judged_calls(table, ()) is table


def test_a_monotonous_run_is_judged_in_stretches_from_its_start_to_its_end() -> None:
    table = _table([PLAIN] * STEPS)
    judged = judged_calls(table, (1234,))
    steps = sorted(judged["step"].unique().to_pylist())
    assert judged.num_rows <= 1.2 * stretches.CALLS
    assert {0, 1, 2, 1233, 1234, 1235, STEPS - 2, STEPS - 1} <= set(steps)
    assert max(np.diff(steps)) < STEPS / 20
    assert judged.num_rows == 3 * len(steps)  # whole steps


@pytest.mark.parametrize(
    "odd",
    [
        [*PLAIN, ("unscale", {"target": "a"})],
        PLAIN[:2],
        [PLAIN[0], ("backward", {"line": 7}), PLAIN[2]],
        [PLAIN[0], ("backward", {"error": "RuntimeError: no"}), PLAIN[2]],
        [PLAIN[0], ("backward", {"holding": ["a", "b"]}), PLAIN[2]],
        [PLAIN[0], PLAIN[1], ("optimizer_step", {"target": "a", "norm": float("nan"), "resized": 1.0})],
        [PLAIN[0], PLAIN[1], ("optimizer_step", {"target": "a", "resized": 0.25})],
    ],
)  # fmt: skip
def test_a_step_unlike_the_others_is_kept_with_its_neighbours(odd: Step) -> None:
    steps = [PLAIN] * STEPS
    for place in (1717, 2222, 3333):
        steps[place] = odd
    assert {1716, 1717, 1718, 2222, 3332, 3333, 3334} <= set(_judged(_table(steps)))


def test_a_kind_that_many_steps_are_of_is_kept_as_it_began_and_last_was() -> None:
    clipped = [*PLAIN[:2], ("clip_norm", {"limit": 1.0}), PLAIN[2]]
    judged = set(_judged(_table([PLAIN] * 1111 + [clipped] * 2222 + [PLAIN] * 777)))
    assert set(range(1111, 1111 + EACH_END)) | set(range(3333 - EACH_END, 3333)) <= judged


def test_numbers_that_differ_on_every_step_make_no_kinds() -> None:
    steps = [[PLAIN[0], PLAIN[1], ("optimizer_step", {"target": "a", "norm": 1.0 + n / STEPS})] for n in range(STEPS)]
    assert len(_judged(_table(steps))) < STEPS / 5


def test_steps_that_are_all_of_another_kind_do_not_drown_the_run() -> None:
    steps = [[*PLAIN[:2], ("clip_norm", {"target": f"t{n}"}), PLAIN[2]] for n in range(STEPS)]
    assert len(_judged(_table(steps))) <= stretches.CALLS / 4 + 3 * KINDS + 3


def test_a_share_of_the_judged_steps_is_one_of_all() -> None:
    chance = np.random.default_rng(0).random(STEPS) < 0.3
    limited = [*PLAIN[:2], ("clip_norm", {"limit": 1.0}), PLAIN[2]]
    free = [*PLAIN[:2], ("clip_norm", {"limit": 64.0}), PLAIN[2]]
    judged = judged_calls(_table([limited if c else free for c in chance]), ())
    limits = [limit for limit in judged["limit"].to_pylist() if limit is not None]
    # 600 of 6000 drawn at random: three standard deviations are 0.06.
    assert np.mean(np.array(limits) == 1.0) == pytest.approx(0.3, abs=0.06)


def test_an_optimizer_that_steps_seldom_has_the_same_number_of_passes_each_time() -> None:
    often = [("backward", {}), ("optimizer_step", {"target": "a"})]
    seldom = [*often, ("optimizer_step", {"target": "b"}), ("zero_grad", {"target": "b"})]
    table = _table([seldom if n % 100 == 99 else often for n in range(STEPS)])
    judged = judged_calls(table, ())
    assert judged.num_rows < table.num_rows / 2
    passes = [sum(c.call == "backward" for c in t.calls) for t in taken_steps(_run(judged)) if t.optimizer == "b"]
    assert passes
    assert set(passes) == {100}


def test_every_step_with_an_exception_is_kept() -> None:
    failed = [*PLAIN, ("exception", {"error": "RuntimeError: no"})]
    steps = [failed if 2000 <= n < 2010 else PLAIN for n in range(STEPS)]
    assert set(range(2000, 2010)) <= set(_judged(_table(steps)))


_TARGETS = st.sampled_from(["a", "b"])
_CALLS = st.lists(st.tuples(st.sampled_from(["backward", "zero_grad", "unscale"]), _TARGETS), max_size=3)
_PERIOD = st.lists(st.tuples(_CALLS, _TARGETS), min_size=1, max_size=6)


@settings(deadline=None, max_examples=20)
@given(period=_PERIOD, oddities=st.lists(st.tuples(st.integers(0, 1499), _CALLS), max_size=3))
def test_whoever_follows_the_calls_finds_no_seam(period: Any, oddities: Any) -> None:
    """Each judged step of an optimizer has the same calls since its gradients were cleared as in the whole run."""
    steps = [[*period[n % len(period)][0], ("optimizer_step", period[n % len(period)][1])] for n in range(1500)]
    for place, calls in oddities:
        steps[place] = [*calls, *steps[place]]
    table = _table([[(name, {"target": target}) for name, target in step] for step in steps])
    judged = judged_calls(table, ())
    whole = {t.call: t for t in taken_steps(_run(table))}
    for taken in taken_steps(_run(judged)):
        assert [c.call for c in taken.calls[-3 * ALIKE :]] == [c.call for c in whole[taken.call].calls[-3 * ALIKE :]]


def _run(calls: pa.Table) -> Run:
    return Run(RunInfo(), lambda name: (calls if name == "calls" else TABLES[name].arrow.empty_table(), []))


def test_rows_of_any_values_are_taken() -> None:
    rows = rows_of("calls", 1500)
    table = pa.Table.from_pylist([vars(r) for r in rows], schema=TABLES["calls"].arrow)
    assert judged_calls(table, ()).num_rows <= table.num_rows
    backwards = table.take(list(range(table.num_rows))[::-1])
    assert set(_judged(backwards)) == set(_judged(table))


def test_a_report_says_how_many_calls_were_judged(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    write_info(tmp_path, RunInfo(status="complete"))
    writer = TraceWriter(tmp_path)
    rows = [CallRow(step=n, micro_batch=0, seq=0, call="backward") for n in range(STEPS)]
    writer.append("calls", rows)
    writer.close()
    run = open_run(tmp_path)
    (notice,) = (gap for gap in diagnose(run).examined.gaps if "calls were judged" in gap)
    assert f"{len(run.calls)} of {STEPS} recorded calls" in notice
    assert CALLS > stretches.CALLS
