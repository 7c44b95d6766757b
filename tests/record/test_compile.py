"""torch.compile: what is compiled, how often, and what comes out of it stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from ampdoctor.engine import diagnose
from tests.record.models import CLASSES, FEATURES, Checkpointed, Residual, Transformer, mlp
from tests.record.training import Outcome, seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.record.recording import Recording

STEPS = 12


pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    _reset()
    yield
    _reset()


def _reset() -> None:
    torch._dynamo.reset()
    counters.clear()


class _Squashed:
    """Calls a model from a function of no module."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x).tanh()


def _stepping(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.step()

    return step


@dataclass
class Compiled:
    """A training of a compiled model, and what the compiler did for it."""

    how: str = "torch.compile"
    model: Callable[[], nn.Module] = mlp
    backend: str = "eager"
    precision: torch.dtype | None = None
    halfway: Callable[[], object] | None = None
    graphs: int = 0
    breaks: dict[str, int] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Train from the seed."""
        counter = torch._dynamo.testing.CompileCounterWithBackend(self.backend)
        seed()
        model = self.model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        forward = self._compiled(model, counter)
        losses = []
        for step in range(STEPS):
            if step == STEPS // 2 and self.halfway is not None:
                self.halfway()
            optimizer.zero_grad()
            with torch.autocast("cpu", self.precision or torch.bfloat16, enabled=self.precision is not None):
                loss = F.cross_entropy(forward(torch.randn(4, FEATURES)).float(), torch.arange(4) % CLASSES)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        self.graphs, self.breaks = counter.frame_count, dict(counters["graph_break"])
        return Outcome.of(losses=losses, parameters=list(model.parameters()), state=optimizer.state_dict())

    def _compiled(self, model: nn.Module, backend: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        if self.how == "torch.compile":
            compiled: Any = torch.compile(model, backend=backend)
            return compiled  # type: ignore[no-any-return]
        if self.how == "module.compile":
            model.compile(backend=backend)
            return model
        if self.how == "function":
            function: Any = torch.compile(_Squashed(model).forward, backend=backend)
            return function  # type: ignore[no-any-return]
        for part in model.children():
            part.compile(backend=backend)
        return model


CASES: dict[str, dict[str, Any]] = {
    "torch.compile": {},
    "module.compile": {"how": "module.compile", "model": Residual},
    "function": {"how": "function"},
    "parts": {"how": "parts", "model": lambda: nn.Sequential(nn.Linear(FEATURES, FEATURES), Residual())},
    "transformer": {"model": Transformer},
    "bf16": {"precision": torch.bfloat16},
    "fp16, aot_eager": {"precision": torch.float16, "backend": "aot_eager"},
    "checkpointed": {"model": lambda: Checkpointed(reentrant=False)},
}


@pytest.mark.parametrize(
    ("settings", "every"),
    [*((settings, 1) for settings in CASES.values()), (CASES["torch.compile"], None)],
    ids=[*CASES, "torch.compile, default schedule"],
)
def test_the_compiler_does_what_it_does_without_us(
    recording: Recording, settings: dict[str, Any], every: int | None
) -> None:
    alone, recorded = Compiled(**settings), Compiled(**settings)
    expected = alone.run()
    _reset()
    with recording.start(every=every):
        outcome = recorded.run()
    assert outcome.differences(expected) == []
    assert (recorded.graphs, recorded.breaks) == (alone.graphs, alone.breaks)
    assert alone.graphs >= 1
    assert len(recording.run.steps) == STEPS
    assert recording.tensors("weight_grad")


def test_a_model_that_runs_already(recording: Recording) -> None:
    alone = Compiled()
    expected = alone.run()
    _reset()
    recorder = recording.start(every=1)
    recorded = Compiled(halfway=recorder.start)
    outcome = recorded.run()
    recorder.stop()
    assert outcome.differences(expected) == []
    assert recorded.graphs == alone.graphs
    assert len(recording.run.steps) == STEPS // 2


def test_a_compiled_optimizer(recording: Recording) -> None:
    def train() -> tuple[Outcome, int, dict[str, int]]:
        _reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
        seed()
        model = nn.Linear(FEATURES, CLASSES)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        step: Any = torch.compile(_stepping(optimizer), backend=counter)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(2, FEATURES)).square().mean().backward()
            step()
        return (Outcome.of(parameters=list(model.parameters())), counter.frame_count, dict(counters["graph_break"]))

    expected, graphs, breaks = train()
    with recording.start(every=1):
        outcome, ours, our_breaks = train()
    assert outcome.differences(expected) == []
    assert (ours, our_breaks) == (graphs, breaks)


def test_steps_that_are_not_seen_end_all_the_same(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.record.step_ends.MOST_MICRO_BATCHES", 3)
    model = nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step: Any = torch.compile(_stepping(optimizer), backend="eager")
    with recording.start(every=1):
        for _ in range(7):
            for parameter in model.parameters():
                parameter.grad = None
            model(torch.randn(2, FEATURES)).square().mean().backward()
            step()
    assert [r.micro_batches for r in recording.run.steps] == [3, 3]


def test_the_parts_of_a_compiled_model_are_not_seen_and_the_rest_is(recording: Recording) -> None:
    model = mlp()
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        compiled(torch.ones(2, FEATURES)).sum().backward()
        optimizer.step()
    paths = {r.module for r in recording.tensors("activation")}
    assert "0" not in paths
    names = {(r.module, r.slot) for r in recording.tensors("weight_grad")}
    assert names == {(module, slot) for module in "03" for slot in ("weight", "bias")}
    (gap,) = (g for g in diagnose(recording.run).examined.gaps if "compiled" in g)
    assert gap.startswith("2 modules with weights ran as compiled code (0, 3): ")


def test_a_users_own_global_hook_is_still_warned_of(recording: Recording) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    compiled: Any = torch.compile(nn.Linear(2, 2), backend="eager")
    with recording.start(every=1) as recorder:
        with pytest.warns(UserWarning, match="global hooks on"):
            compiled(torch.ones(1, 2))
        recorder.step()
    handle.remove()
