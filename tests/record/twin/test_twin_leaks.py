"""After a twin step nothing of it is left: no mode, no hook, no twin, no memory, however the step ended."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.record.ledger.look import FIRST as LEDGER
from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.recorder import Recorder
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.storages import TwinStorages
from tests.record.training import Outcome
from tests.record.twin.cases import CASES
from tests.record.twin.recorded import EARLY, opinion, recorded, recording
from tests.record.twin.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.record.twin.training import Case

LOW = Setting(scale=2.0**-4)


def depth() -> int:
    """Return how many modes of Python's dispatch are on."""
    return int(torch._C._len_torch_dispatch_stack())


def alive() -> list[Any]:
    """Return what there is of twin steps."""
    gc.collect()
    return [o for kind in (TwinMode, CarriedTwin, TwinStorages) for o in live_instances(kind)]


def storage_bytes() -> int:
    """Return the bytes of all live tensors."""
    gc.collect()
    plain = [t for t in live_instances(torch.Tensor) if t.layout is torch.strided]
    return sum({s._cdata: s.nbytes() for t in plain for s in [t.untyped_storage()]}.values())


class Loop:
    """A loop whose forward and backward can be made to fail, as people write it."""

    def __init__(self, steps: int = EARLY + 3) -> None:
        torch.manual_seed(0)
        self.steps, self.losses = steps, list[torch.Tensor]()
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-2)
        self.in_forward: Callable[[int], None] = lambda step: None
        self.in_backward: Callable[[int], None] = lambda step: None
        self.between: Callable[[int], None] = lambda step: None

    def run(self) -> Outcome:
        """Train; a step that fails is given up, and the training goes on."""
        for step in range(self.steps):
            self.optimizer.zero_grad()
            x = torch.randn(4, 8)
            with contextlib.suppress(ZeroDivisionError):
                self.step(step, x)
            self.between(step)
        return Outcome.of(
            losses=self.losses, weights=list(self.model.parameters()),
            gradients=[p.grad for p in self.model.parameters()], scale=self.scaler.state_dict(),
            optimizer=self.optimizer.state_dict(),
        )  # fmt: skip

    def step(self, step: int, x: torch.Tensor) -> None:
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = self.model[1](self.model[0](x))
            self.in_forward(step)
            hidden.register_hook(lambda _: self.in_backward(step))
            loss = F.cross_entropy(self.model[2](hidden), torch.arange(4))
        self.losses.append(loss.detach())
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


@pytest.fixture(autouse=True)
def _nothing_of_twins_left() -> Iterator[None]:
    assert alive() == []
    yield
    assert depth() == 0
    assert alive() == []


@pytest.mark.parametrize("case", CASES[:4] + CASES[8:14], ids=str)
def test_memory_is_what_it_was(tmp_path: Path, case: Case) -> None:
    setting = Setting(case.halves[0], LOW.scale)
    training = case.start(0)
    sizes, left = [], []
    with recording(tmp_path / "run"):
        for _ in range(EARLY + 3):
            assert depth() <= 1
            training.run_step(setting)
            sizes.append(storage_bytes())
            left.append(sum(len(t.storages) for t in live_instances(CarriedTwin)))
    assert left == [0] * len(left)
    assert sizes[EARLY + 1 :] == [sizes[EARLY - 1]] * 2


def test_no_mode_is_on_while_the_optimizer_works_and_after_the_step(tmp_path: Path) -> None:
    depths: list[tuple[str, int, int]] = []
    loop = Loop()

    def before_step(*_: Any) -> None:
        depths.append(("step", len(loop.losses) - 1, depth()))

    loop.optimizer.register_step_pre_hook(before_step)
    loop.between = lambda step: depths.append(("after", step, depth()))
    loop.in_forward = lambda step: depths.append(("forward", step, depth()))
    recorded(tmp_path / "run", loop.run)
    # A ledger is of the whole step, the optimizer's part included.
    assert {step for where, step, n in depths if where == "step" and n} <= {LEDGER}
    twinned = {step for where, step, n in depths if where == "forward" and n}
    assert EARLY in twinned
    # After the step before, the mode of the twin step is already on: it begins at the boundary,
    # be it that of a step that never comes.
    assert {step + 1 for where, step, n in depths if where == "after" and n} <= {*twinned, loop.steps}


@pytest.mark.parametrize("where", ["in_forward", "in_backward"])
def test_an_error_of_the_user_s_that_is_caught(tmp_path: Path, where: str) -> None:
    def failing(step: int) -> None:
        if step == EARLY:
            raise ZeroDivisionError

    outcomes = []
    for folder in (None, tmp_path / "run"):
        loop = Loop()
        setattr(loop, where, failing)
        if folder is None:
            outcomes.append(loop.run())
        else:
            outcome, run = recorded(folder, loop.run)
            outcomes.append(outcome)
            assert opinion(run).declined is None
    assert outcomes[0].differences(outcomes[1]) == []


@pytest.mark.parametrize("where", ["in_forward", "in_backward"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_error_that_ends_the_training(tmp_path: Path, where: str, error: type[BaseException]) -> None:
    def failing(step: int) -> None:
        if step == EARLY:
            raise error("the user's")

    loop = Loop()
    setattr(loop, where, failing)
    with pytest.raises(error, match="the user's"), recording(tmp_path / "run"):
        loop.run()
    assert depth() == 0
    Loop().run()


@pytest.mark.parametrize("where", ["in_forward", "in_backward", "between"])
def test_stopped_in_the_middle_of_a_twin_step(tmp_path: Path, where: str) -> None:
    plain = Loop().run()
    loop = Loop()
    with recording(tmp_path / "run") as recorder:

        def stopping(step: int) -> None:
            if step == (EARLY - 1 if where == "between" else EARLY):
                recorder.stop()
                assert depth() == 0

        setattr(loop, where, stopping)
        outcome = loop.run()
    assert plain.differences(outcome) == []


def test_twins_do_not_keep_the_run_s_tensors_alive(tmp_path: Path) -> None:
    kept: list[weakref.ref[Any]] = []
    loop = Loop()
    counts: list[int] = []

    def forward(step: int) -> None:
        counts.append(sum(ref() is not None for ref in kept))
        kept.clear()

    loop.in_forward = forward
    loop.model[0].register_forward_hook(lambda *args: kept.append(weakref.ref(args[2].untyped_storage())))  # fmt: skip
    recorded(tmp_path / "run", loop.run)
    assert counts[1:] == [counts[1]] * (len(counts) - 1)


def test_a_recorder_started_and_stopped_again_and_again(tmp_path: Path) -> None:
    for n in range(3):
        recorded(tmp_path / f"run{n}", Loop().run)
    assert alive() == []
    assert not live_instances(Recorder)
