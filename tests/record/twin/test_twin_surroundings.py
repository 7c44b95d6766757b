"""Twin steps among what else programs do: modes of their own, fused optimizers, closures, copies, threads, forks."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from tests.record.training import Outcome
from tests.record.twin.counting import Counting, CountingFunctions
from tests.record.twin.recorded import EARLY, opinion, recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = EARLY + 2


class Program:
    """A training with a place where something is done with the hidden state, and one around the whole step."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> None:
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.model = nn.ModuleList([self.first, self.last])
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-3)
        self.said: list[Any] = []

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        """What the subclasses do."""
        return hidden

    def forward_backward(self, step: int) -> None:
        x = torch.randn(4, 8)
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = self.middle(step, F.gelu(self.first(x)))
            loss = F.cross_entropy(self.last(hidden), torch.arange(4))
        self.said.append(float(loss.detach()))
        self.scaler.scale(loss).backward()

    def step(self, step: int) -> None:
        self.optimizer.zero_grad()
        self.forward_backward(step)
        self.said += [float(p.grad.norm()) for p in self.model.parameters() if p.grad is not None]
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self) -> Outcome:
        """Train."""
        for step in range(STEPS):
            self.step(step)
        return Outcome.of(
            said=self.said, weights=list(self.model.parameters()), optimizer=self.optimizer.state_dict()
        )  # fmt: skip


class ModeInside(Program):
    """A mode is on within the forward."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        with Counting() as ops, CountingFunctions() as functions:
            hidden = torch.tanh(hidden @ torch.ones(16, 16, dtype=hidden.dtype)) + hidden
        self.said.append((sorted(ops.seen.items()), sorted(functions.seen.items())))
        return hidden


class ModeAround(Program):
    """A mode is on for whole steps."""

    def step(self, step: int) -> None:
        with Counting() as ops, CountingFunctions() as functions:
            super().step(step)
        self.said.append((sorted(ops.seen.items()), sorted(functions.seen.items())))


class ModeAcross(Program):
    """A mode is on from the middle of one step to the middle of the next."""

    on: Any = None

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        if self.on is not None:
            self.on.__exit__(None, None, None)
            self.said.append(sorted(self.on.seen.items()))
            self.on = None
        if step < STEPS - 1:
            self.on = Counting()
            self.on.__enter__()
        return hidden


class CountedFlops(Program):
    """FlopCounterMode around forward and backward."""

    def forward_backward(self, step: int) -> None:
        with FlopCounterMode(display=False) as flops:
            super().forward_backward(step)
        self.said.append(flops.get_total_flops())


class Evaluating(Program):
    """Something is evaluated in between, with and without inference mode; and under fake tensors."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.said.append(float(self.last(hidden).float().mean()))
        with torch.inference_mode():
            self.said.append(int(self.last(hidden).argmax()))
        with FakeTensorMode():
            self.said.append(tuple((torch.ones(3, 4).half() @ torch.ones(4, 5).half()).shape))
        return hidden


class Copying(Program):
    """The model is copied, pickled and saved in the middle of the step."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        twin = copy.deepcopy(self.model)
        with io.BytesIO() as file:
            torch.save({"m": self.model.state_dict(), "h": hidden.detach()}, file)
            file.seek(0)
            loaded = torch.load(file)
        again = pickle.loads(pickle.dumps(self.model))
        self.said.append([p.detach().clone() for m in (twin, again) for p in m.parameters()])
        self.said.append(loaded)
        return hidden + copy.deepcopy(hidden.detach()) * 0.1


class Watched(Program):
    """Under anomaly detection."""

    def forward_backward(self, step: int) -> None:
        with torch.autograd.set_detect_anomaly(mode=True):
            super().forward_backward(step)


class Transformed(Program):
    """torch.func inside the step."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        slopes = torch.func.vmap(torch.func.grad(lambda h: torch.tanh(h).sum()))(hidden.detach())
        result: torch.Tensor = hidden + slopes.to(hidden.dtype)
        return result


class Threaded(Program):
    """Another thread computes meanwhile."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        own: list[torch.Tensor] = []
        work = threading.Thread(target=lambda: own.append(torch.ones(8, 8) @ torch.ones(8, 8)))
        work.start()
        y = torch.tanh(hidden) + hidden
        work.join()
        self.said.append(float(own[0].sum()))
        return y


class Loading(Program):
    """Workers of a data loader are forked in the middle of the step, and compute."""

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        if step == EARLY:
            data = TensorDataset(torch.arange(8.0).view(4, 2))
            batches = list(DataLoader(data, num_workers=1, collate_fn=_computed))
            self.said.append(batches)
        return hidden


def _computed(rows: list[Any]) -> torch.Tensor:
    nothing_on = torch._C._len_torch_dispatch_stack() == 0
    return (torch.stack([r[0] for r in rows]).half() @ torch.ones(2, 2).half()).float() * nothing_on


class Accumulating(Program):
    """Four micro-batches."""

    def step(self, step: int) -> None:
        self.optimizer.zero_grad()
        for _ in range(4):
            self.forward_backward(step)
        self.scaler.unscale_(self.optimizer)
        self.said.append(float(nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)))
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Closure(Program):
    """LBFGS runs forward and backward itself, several times a step."""

    def __init__(self) -> None:
        super().__init__(lambda p, lr: torch.optim.LBFGS(p, lr=lr, max_iter=3))

    def step(self, step: int) -> None:
        def closure() -> float:
            self.optimizer.zero_grad()
            x = torch.linspace(-1, 1, 32).view(4, 8)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(self.last(F.gelu(self.first(x))), torch.arange(4))
            loss.backward()
            return float(loss.detach())

        self.said.append(self.optimizer.step(closure))


class Traced(Program):
    """A part of the model is a traced one of TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        example = torch.ones(4, 16)
        self.traced = torch.jit.trace(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), example)
        self.optimizer.add_param_group({"params": list(self.traced.parameters()), "lr": 0.1})

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = hidden + self.traced(hidden.float()).to(hidden.dtype)
        return result


class TwoModels(Program):
    """One optimizer for two models, another model without any."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(16, 16)
        self.teacher = nn.Linear(8, 16)
        self.optimizer.add_param_group({"params": list(self.other.parameters()), "lr": 0.1})

    def middle(self, step: int, hidden: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = self.teacher(torch.ones(4, 8))
        result: torch.Tensor = self.other(hidden) + target
        return result


PROGRAMS = (
    Program, ModeInside, ModeAround, ModeAcross, CountedFlops, Evaluating, Copying, Watched, Transformed, Threaded,
    Loading, Accumulating, Closure, Traced, TwoModels,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_training_comes_out_the_same(tmp_path: Path, program: type[Program]) -> None:
    plain = program().run()
    outcome, run = recorded(tmp_path / "run", lambda: program().run())
    assert outcome.differences(plain) == []
    row = opinion(run)
    assert row.declined is None
    assert [r for r in run.twins if r.counterfactual == "run" and r.role == "weight_grad"]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw-fused": lambda p, lr: torch.optim.AdamW(p, lr=lr, fused=True),
    "adamw-foreach": lambda p, lr: torch.optim.AdamW(p, lr=lr, foreach=True),
    "sgd-fused": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, fused=True),
    "adagrad": torch.optim.Adagrad,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(tmp_path: Path, optimizer: str) -> None:
    plain = Program(OPTIMIZERS[optimizer]).run()
    outcome, run = recorded(tmp_path / "run", lambda: Program(OPTIMIZERS[optimizer]).run())
    assert outcome.differences(plain) == []
    assert opinion(run).not_twinned == []
