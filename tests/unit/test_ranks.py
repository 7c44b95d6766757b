"""What is said of a run of several ranks, and which ranks it names."""

from __future__ import annotations

import math

import pytest

from ampdoctor.analysis.ranks import BROKEN_LOSS, SCALE, SKIPPED, UNSCALED, differences, differing_ranks
from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from ampdoctor.trace.builder import RunBuilder


def _rank(*, loss: float = 1.0, skips: bool = False, scale: float = 8.0, overflows: bool = False) -> RunBuilder:
    run = RunBuilder().step(loss=1.0, loss_scale=8.0)
    run.step(loss=loss, applied=not skips, loss_scale=scale)
    run.tensor("0", "grad_output", exponents={0: 9}, nan=int(overflows))
    return run


def test_one_rank_alone_is_compared_with_nothing() -> None:
    run = _rank(loss=math.nan).build()
    assert differences(run) == ()
    (skipped,) = (s for s in diagnose(run).skipped if s.rule == "ranks-differ")
    assert skipped.reason == "not recorded: another rank"


def test_the_ranks_with_nan_stand_out_however_many() -> None:
    run = _rank().beside(_rank(loss=math.nan), _rank(loss=math.inf)).build()
    (found,) = differences(run)
    assert (found.kind, found.ranks, found.others, found.steps) == (BROKEN_LOSS, (1, 2), (0,), (1,))
    assert differing_ranks(run) == (1,)


@pytest.mark.parametrize(("skips", "ranks"), [((True, False, False), (0,)), ((True, True, False), (2,))])
def test_of_skips_the_fewer_stand_out(skips: tuple[bool, ...], ranks: tuple[int, ...]) -> None:
    first, *others = (_rank(skips=skip) for skip in skips)
    run = first.beside(*others).build()
    (found,) = differences(run)
    assert (found.kind, found.ranks) == (SKIPPED, ranks)
    (finding,) = (f for f in diagnose(run).findings if f.name == "ranks-differ")
    assert finding.location.ranks == ranks
    assert finding.summary.startswith(f"Rank {ranks[0]} {'skips' if ranks == (0,) else 'takes'} steps that ranks ")


def test_another_loss_scale_is_named() -> None:
    run = _rank().beside(_rank(), _rank(scale=4.0)).build()
    (found,) = differences(run)
    assert (found.kind, found.ranks, found.fact) == (SCALE, (2,), 4.0)


def test_a_rank_that_scales_nothing_differs_from_those_that_do() -> None:
    bare = RunBuilder().step(loss=1.0).step(loss=1.0)
    run = _rank().beside(_rank(), bare).build()
    (found,) = differences(run)
    assert (found.kind, found.ranks, found.fact) == (SCALE, (2,), UNSCALED)
    assert differing_ranks(run) == (2,)


def test_steps_that_one_rank_has_not_reached_are_not_compared() -> None:
    assert differences(RunBuilder().step(loss=1.0, loss_scale=8.0).beside(_rank(loss=math.nan)).build()) == ()


def test_an_overflow_that_all_ranks_skip_is_a_note() -> None:
    def rank(*, overflows: bool) -> RunBuilder:
        return _rank(skips=True, overflows=overflows).step(loss=1.0)

    run = rank(overflows=False).beside(rank(overflows=True)).build()
    (finding,) = (f for f in diagnose(run).findings if f.name == "ranks-differ")
    assert (finding.severity, finding.location.ranks) == (Severity.NOTE, (1,))


def test_findings_of_all_ranks_name_them_and_say_what_was_judged() -> None:
    run = _rank().beside(_rank()).build()
    assert diagnose(run).examined.gaps[-1] == "2 ranks recorded and compared; by every rule, rank 0 was judged"
    differs = _rank().beside(_rank(loss=math.nan)).build()
    assert diagnose(differs).examined.gaps[-1].endswith("and where it differs from others rank 1")
