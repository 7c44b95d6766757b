"""Small trainings whose steps are kept and executed again."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_hooks

from ampdoctor.record.guard import Guard
from ampdoctor.record.state import State
from ampdoctor.record.twin.operations import tensors_of
from ampdoctor.record.twin.replay.again import Gradients, Outcome, replay
from ampdoctor.record.twin.replay.kept import RootCalls
from tests.record.twin.replayed_networks import CLASSES, NETWORKS, WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampdoctor.record.twin.mode import Follower
    from ampdoctor.record.twin.operations import Operation

TOO_LARGE = 2.0**40
"""A loss scale at which every gradient of these networks overflows."""


class Births:
    """Follower: the operations that inf or NaN come out of, though none went in."""

    def __init__(self) -> None:
        self.not_twinned: Counter[str] = Counter()
        self.found: list[tuple[str, str | None, bool]] = []
        self.lines: list[tuple[str | None, int | None]] = []

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        values = (*operation.args, *operation.kwargs.values())
        if "empty" in operation.traits.name or not _finite(values):
            return None

        def then(result: Any) -> None:
            if not _finite(result):
                place = operation.place
                self.found.append((operation.traits.name, place.module, place.backward))
                self.lines.append((place.source.file, place.source.line))

        return then


class Watch:
    """Follower that counts."""

    def __init__(self) -> None:
        self.not_twinned: Counter[str] = Counter()
        self.operations = 0

    def before(self, operation: Operation) -> None:
        self.operations += 1


class Failing:
    """Follower that fails at its first operation."""

    def __init__(self) -> None:
        self.not_twinned: Counter[str] = Counter()

    def before(self, operation: Operation) -> None:
        raise ArithmeticError("a follower's")


class Keeper:
    """Keeps the steps of a training as the recorder does."""

    def __init__(self, most_bytes: float | Callable[[], float] = 1 << 30) -> None:
        self.active = True
        self.guard = Guard(lambda error: None, strict=True)
        self.kept = RootCalls(self, most_bytes)
        self.errors: list[Exception] = []

    @property
    def replaying(self) -> bool:
        return self.kept.replaying

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return State.guarded(self, function)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def examined(self) -> Iterator[None]:
        """See all module calls, as in an examined step."""

        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            with self.guard:
                self.kept.met(module, args)

        def after(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            with self.guard:
                self.kept.left(module, kwargs, output)

        handles = [torch_hooks.register_module_forward_pre_hook(before)]
        if hasattr(torch_hooks, "_global_forward_hooks_with_kwargs"):
            handles.append(torch_hooks.register_module_forward_hook(after, with_kwargs=True))
        else:  # torch 2.4
            handles.append(torch_hooks.register_module_forward_hook(lambda m, a, o: after(m, a, {}, o)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
                getattr(torch_hooks, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)

    def meet(self, *modules: nn.Module) -> None:
        """Let the modules be known as roots, from calls of a step that is over."""
        with self.examined():
            for module in modules:
                self.kept.met(module, ())
                self.kept.left(module, {}, None)
        self.kept.forget()

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        with self.guard:
            self.kept.backward_begins([loss])
        try:
            loss.backward(**kwargs)
        finally:
            with self.guard:
                self.kept.backward_ended()

    def replay(
        self,
        *followers: Follower,
        harvest: Callable[[Gradients], None] | None = None,
        seeded: Callable[[torch.Tensor], None] | None = None,
        hooks_too: bool = False,
    ) -> Outcome:
        with self.guard:
            return replay(
                self.kept, followers, path=lambda m: type(m).__name__, on_error=self.errors.append,
                seeded=seeded, harvest=harvest, hooks_too=hooks_too,
            )  # fmt: skip
        raise AssertionError("the guard has swallowed an error")


@dataclass
class Run:
    """A training in FP16 on the CPU, and what it has come to.

    Attributes:
        keeper: keeps its steps; None for a training without us.
    """

    net: nn.Module
    keeper: Keeper | None = None
    losses: list[torch.Tensor] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        parameters = [p for p in self.net.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, 0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)

    def train(self, steps: int, failing: Sequence[int], *followers: Follower) -> Run:
        """Run steps; those that are to fail do so by their loss scale, and are replayed."""
        for step in range(steps):
            examined = self.keeper is not None and step == 0
            with self.keeper.examined() if examined and self.keeper else contextlib.nullcontext():
                self.forward_backward(TOO_LARGE if step in failing else 8.0)
            before = self.optimizer_steps()
            self.scaler.step(self.optimizer)
            if step in failing:
                assert self.optimizer_steps() == before, "it was not skipped"
                if self.keeper is not None:
                    self.outcomes.append(self.keeper.replay(*followers))
            self.scaler.update()
            if self.keeper is not None:
                self.keeper.kept.forget()
        return self

    def forward_backward(self, scale: float) -> None:
        self.scaler.scale(torch.zeros(()))  # makes the scale that the next line changes
        torch.as_tensor(self.scaler._scale).fill_(scale)
        self.optimizer.zero_grad()
        x, target = torch.randn(6, WIDTH), torch.randint(CLASSES, (6,))
        with torch.autocast("cpu", torch.float16):
            out = self.net(x)
            out = out["logits"] if isinstance(out, dict) else getattr(out, "logits", out)
            loss = F.cross_entropy(out, target)
        self.losses.append(loss.detach())
        scaled = self.scaler.scale(loss)
        if self.keeper is not None:
            self.keeper.backward(scaled)
        else:
            scaled.backward()

    def optimizer_steps(self) -> list[float]:
        return [float(s["step"]) for s in self.optimizer.state.values()]

    def state(self) -> list[torch.Tensor]:
        """Return everything that a later step depends on."""
        moments = [v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        draws = [torch.rand(3), torch.tensor(random.random()), torch.tensor(np.random.rand())]
        weights = [t.detach().clone() for t in self.net.state_dict().values()]
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        return [*weights, *moments, *self.losses, *gradients, *draws]


def start(name: str, keeper: Keeper | None = None) -> Run:
    """Build a training; the same each time."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    return Run(NETWORKS[name](), keeper)


def linear(keeper: Keeper) -> nn.Module:
    net = nn.Linear(WIDTH, CLASSES)
    keeper.meet(net)
    return net


def gradients_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return what the run has accumulated."""
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def harvested(module: nn.Module, found: Gradients) -> dict[str, torch.Tensor]:
    """Return the gradients of a replay by the same names."""
    by_id = {id(p): g for p, g in found}
    return {n: by_id[id(p)] for n, p in module.named_parameters() if id(p) in by_id}


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    """Whether there are gradients, and the same."""
    return bool(ours) and ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def _finite(value: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors_of(value) if t.is_floating_point())
