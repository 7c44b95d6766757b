"""Which steps get a second opinion, how much of one memory allows, and what happens when one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.record.recorder import Recorder
from ampdoctor.record.twin import opinions, worlds
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import prepare_folder
from tests.record.twin.cases import CASES
from tests.record.twin.recorded import EARLY, opinion, recorded, trained
from tests.record.twin.setting import Setting
from tests.record.twin.test_twin_leaks import Loop, alive, depth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.trace.run import Run

LOW = Setting(scale=2.0**-6)
MLP = CASES[0]


def mlp(steps: int = EARLY + 3) -> Any:
    """Train and return everything to the bit."""
    return trained(MLP, LOW, steps)[0]


def steps_of(run: Run, reason: str | None = None) -> list[int]:
    """Return the steps with a second opinion (for one reason)."""
    return [
        r.step for r in run.twin_steps if r.kind != "replay" and reason in {None, r.reason}
    ]  # fmt: skip


def unlike_strict(folder: Path, train: Callable[[], Any]) -> tuple[Any, Run]:
    """Record without raising errors of ours, as users do."""
    prepare_folder(folder)
    with Recorder(folder, strict=False):
        result = train()
    return result, open_run(folder)


def test_the_early_one(tmp_path: Path) -> None:
    _, run = recorded(tmp_path / "run", lambda: mlp(30))
    assert steps_of(run, "first") == [EARLY]


def test_one_that_is_asked_for(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "run")
    with Recorder(tmp_path / "run", strict=True, prove=False) as recorder:
        training = MLP.start(0)
        for step in range(8):
            if step in {4, 6}:
                recorder.prove()
            training.run_step(LOW)
    assert steps_of(open_run(tmp_path / "run"), "asked") == [5, 7]


def test_none_before_anything_is_known(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "run")
    recorder = Recorder(tmp_path / "run", strict=True, prove=False)
    recorder.prove()
    with recorder:
        mlp(3)
    assert opinion(open_run(tmp_path / "run"), 0).declined == "nothing is known of the run yet"


def test_a_run_in_fp32_holds_nothing_half(tmp_path: Path) -> None:
    _, run = recorded(tmp_path / "run", lambda: trained(MLP, Setting(None), EARLY + 2))
    row = opinion(run)
    assert row.declined == "the run holds nothing in half precision"
    assert (row.counterfactuals, row.operations) == ([], 0)
    assert not run.twins


def test_an_onset_of_trouble_gets_one_the_first_time(tmp_path: Path) -> None:
    loop = Loop(12)
    loop.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, backoff_factor=2.0**-6)
    _, run = recorded(tmp_path / "run", loop.run)
    assert sum(row.found_inf or False for row in run.steps) > 1
    assert len(steps_of(run, "skip")) == 1


def test_beyond_that_within_a_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for share, expected in ((0.0, 0), (1e9, 5)):
        monkeypatch.setattr(opinions, "SHARE", share)
        folder = tmp_path / f"run{share}"
        prepare_folder(folder)
        with Recorder(folder, strict=True, every=1):
            mlp(EARLY + 8)
        assert len(steps_of(open_run(folder), "interval")) >= expected
        assert expected or not steps_of(open_run(folder), "interval")


@pytest.mark.parametrize(("twins_that_fit", "carried"), [(100.0, 4), (3.0, 1), (1e-3, 0)], ids=["all", "one", "none"])
def test_too_little_memory_means_fewer_twins_and_then_none_but_local_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twins_that_fit: float, carried: int
) -> None:
    plain = mlp()
    known: list[Any] = []
    monkeypatch.setattr(opinions, "room_beside_step", lambda _: twins_that_fit * known[0].step_bytes())
    fitting = opinions.SecondOpinions._fitting

    def noting(self: Any, plan: Any) -> Any:
        known[:] = [self._known]
        return fitting(self, plan)

    monkeypatch.setattr(opinions.SecondOpinions, "_fitting", noting)
    outcome, run = recorded(tmp_path / "run", mlp)
    assert outcome.differences(plain) == []
    row = opinion(run)
    assert len(row.counterfactuals) == carried
    assert (row.declined is None) == (twins_that_fit == 100.0)
    assert row.declined is None or row.declined.startswith("too little free memory for ")
    assert row.kind == ("carried" if carried else "local")
    assert row.operations > 0
    assert [r for r in run.ops if r.step == EARLY]
    if carried == 1:
        assert steps_of(run, "follow-up") == [EARLY + 1, EARLY + 2][: len(steps_of(run, "follow-up"))]


def test_beyond_their_budget_twins_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan has estimated; what is allotted is counted."""
    plain = mlp()
    monkeypatch.setattr(worlds, "room_beside_step", lambda _: 4096.0)
    outcome, run = recorded(tmp_path / "run", mlp)
    assert outcome.differences(plain) == []
    assert opinion(run).declined == "out of memory"
    assert (opinion(run).twin_bytes or 0) <= 4096
    assert run.steps[-1].step == EARLY + 2


class Failing:
    """Raises `error` on the n-th call of a method, and keeps failing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, error: type[Exception], n: int) -> None:
        original, calls = getattr(kind, method), [0]

        def fail(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] >= n:
                raise error("ours")
            return original(*args, **kwargs)

        monkeypatch.setattr(kind, method, fail)


@pytest.mark.parametrize("method", ["before", "_execute", "values", "seed"])
@pytest.mark.parametrize("n", [1, 20])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, ZeroDivisionError], ids=["memory", "error"])
def test_a_failing_follower_ends_the_second_opinion_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, n: int, error: type[Exception]
) -> None:
    plain = mlp()
    Failing(monkeypatch, CarriedTwin, method, error, n)
    outcome, run = unlike_strict(tmp_path / "run", mlp)
    assert outcome.differences(plain) == []
    assert (depth(), alive()) == (0, [])
    assert run.steps[-1].step == EARLY + 2
    if method in {"before", "_execute"}:
        short = error is torch.OutOfMemoryError
        assert opinion(run).declined == ("out of memory" if short else "ZeroDivisionError: ours")
        assert not [r for r in run.twins if r.role == "gradient" and r.step == EARLY]


def test_a_failing_local_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mlp()
    Failing(monkeypatch, LocalTwins, "before", ZeroDivisionError, 5)
    outcome, run = unlike_strict(tmp_path / "run", mlp)
    assert outcome.differences(plain) == []
    assert opinion(run).declined == "ZeroDivisionError: ours"


def test_in_tests_an_error_of_ours_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Failing(monkeypatch, CarriedTwin, "before", ZeroDivisionError, 5)
    with pytest.raises(ZeroDivisionError, match="ours"):
        recorded(tmp_path / "run", mlp)
    assert depth() == 0
