"""Twin steps of compiled models: eager for that step, then the compiled code again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo import eval_frame
from torch._dynamo.testing import CompileCounter

from ampdoctor.trace.run import open_run
from tests.record.training import Outcome
from tests.record.twin.recorded import EARLY, opinion, recorded, recording, twin_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ampdoctor.trace.run import Run

STEPS = EARLY + 3


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    stance = eval_frame._stance
    yield
    assert eval_frame._stance is stance
    torch._dynamo.reset()


class Compiled:
    """A model, compiled or not."""

    def __init__(self, backend: Any = None, dropout: float = 0.0) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 4))
        self.called = torch.compile(self.model, backend=backend) if backend else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-3)
        self.around: Callable[[int, Callable[[], None]], None] = lambda _, step: step()
        self.stances: list[str] = []

    def run(self) -> Outcome:
        """Train."""
        for step in range(STEPS):
            self.around(step, self.step)
            self.stances.append(eval_frame._stance.stance)
        gradients = [p.grad for p in self.model.parameters()]
        return Outcome.of(weights=list(self.model.parameters()), gradients=gradients)

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(self.called(torch.randn(4, 8)), torch.arange(4))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def proven(folder: Path, loop: Compiled) -> tuple[Outcome, Run]:
    """Record the loop, with a second opinion on step EARLY that was asked for."""
    around = loop.around
    with recording(folder) as recorder:

        def ask(step: int, train: Callable[[], None]) -> None:
            if step == EARLY - 1:
                recorder.prove()
            around(step, train)

        loop.around = ask
        outcome = loop.run()
    return outcome, open_run(folder)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_by_default_compiled_code_is_left_alone(tmp_path: Path, backend: str) -> None:
    plain = Compiled(backend, dropout=0.5).run()
    torch._dynamo.reset()
    outcome, run = recorded(tmp_path / "run", Compiled(backend, dropout=0.5).run)
    assert outcome.differences(plain) == []
    assert "the model is compiled" in (opinion(run).declined or "")
    assert "--prove" in (opinion(run).declined or "")
    assert not run.twins


def test_it_runs_eagerly_once_and_is_not_compiled_again(tmp_path: Path) -> None:
    plain = Compiled("eager").run()
    torch._dynamo.reset()
    counter = CompileCounter()
    loop = Compiled(counter)
    outcome, run = proven(tmp_path / "run", loop)
    assert outcome.differences(plain) == []
    assert counter.frame_count == 1
    row = opinion(run)
    assert (row.declined, row.eager) == (None, True)
    assert row.operations > 20
    assert twin_rows(run, "weight_grad", "fp32")
    before_next_step = EARLY - 1
    assert [n for n, s in enumerate(loop.stances) if s == "force_eager"] == [before_next_step]


def test_aot_eager(tmp_path: Path) -> None:
    _, run = proven(tmp_path / "run", Compiled("aot_eager"))
    assert (opinion(run).declined, opinion(run).eager) == (None, True)
    (full,) = twin_rows(run, "gradient", "fp32")
    assert full.flushed == 0


def test_nothing_compiled_is_nothing_set_aside(tmp_path: Path) -> None:
    _, run = recorded(tmp_path / "run", Compiled().run)
    assert (opinion(run).declined, opinion(run).eager) == (None, False)


def test_a_function_compiled_for_the_first_time_in_the_twin_step(tmp_path: Path) -> None:
    counter = CompileCounter()
    loop = Compiled()
    late = torch.compile(lambda x: x.sin() + 1, backend=counter)

    def around(step: int, train: Callable[[], None]) -> None:
        if step >= EARLY:
            late(torch.ones(3))
        train()

    loop.around = around
    _, run = proven(tmp_path / "run", loop)
    assert opinion(run).eager
    assert counter.frame_count == 1  # and not skipped for ever


@pytest.mark.parametrize("stance", ["eager_on_recompile", "force_eager", "default"])
def test_the_user_s_own_stance_is_there_again(tmp_path: Path, stance: str) -> None:
    loop = Compiled("eager")
    with torch.compiler.set_stance(stance):
        proven(tmp_path / "run", loop)
        assert eval_frame._stance.stance == stance
    others = {s for n, s in enumerate(loop.stances) if n != EARLY - 1}
    assert others == {stance}


def test_a_stance_chosen_for_the_twin_step_itself(tmp_path: Path) -> None:
    """The user's block begins after ours and ends after it: ours must not come back with its end."""
    loop = Compiled("eager")

    def around(step: int, train: Callable[[], None]) -> None:
        with torch.compiler.set_stance("force_eager" if step == EARLY + 2 else "default"):
            train()

    loop.around = around
    proven(tmp_path / "run", loop)
    assert [n for n, s in enumerate(loop.stances) if s == "force_eager"] in ([], [EARLY - 1])
    assert eval_frame._stance.stance == "default"


def test_a_stance_chosen_for_good_within_the_twin_step_stays(tmp_path: Path) -> None:
    loop = Compiled("eager")

    def around(step: int, train: Callable[[], None]) -> None:
        if step == EARLY:
            torch.compiler.set_stance("eager_on_recompile")
        train()

    loop.around = around
    with torch.compiler.set_stance("default"):
        proven(tmp_path / "run", loop)
        assert loop.stances[EARLY:] == ["eager_on_recompile"] * (STEPS - EARLY)
