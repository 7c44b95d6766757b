"""What is measured: ampdoctor in each of its modes, other tools, and nothing at all."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.record.callsite import full_call_site
from ampdoctor.record.log import StepLog
from ampdoctor.record.recorder import Recorder
from ampdoctor.record.schedule import FIRST_STEPS
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.compare import comparison_vector
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from benchmarks.overhead import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from benchmarks.overhead.training import Training

    Attach = Callable[[Training, Path], AbstractContextManager[Callable[[], None]]]

NEVER = 1 << 40
SMALLEST_FP16 = 2.0**-14


@dataclass(frozen=True)
class Tool:
    """A way to look at a training.

    Attributes:
        attach: puts the tool in place, given a folder to write to, and gives what to call for a step.
        records: what it looks at, in a few words.
        warm: steps after it is in place before the clock starts.
        most: steps that are timed after them at most.
        whole: it has to be timed over a whole recording, its beginning included: it does not do the same on each step.
        halves: it has something to do only where something is in half precision.
        package: what has to be installed for it.
    """

    attach: Attach
    records: str
    warm: int = 1
    most: int | None = None
    whole: bool = False
    halves: bool = False
    package: str | None = None


@contextlib.contextmanager
def nothing(training: Training, _: Path) -> Iterator[Callable[[], None]]:
    """Look at nothing: what this is measured as is the machine's noise."""
    yield training.step


@contextlib.contextmanager
def recorded(training: Training, folder: Path, **settings: Any) -> Iterator[Callable[[], None]]:
    """Record, with errors of the recorder raised: one that has given up would cost nothing."""
    run = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    with Recorder(run, strict=True, **settings):
        yield training.step


@contextlib.contextmanager
def local_twins(training: Training, _: Path) -> Iterator[Callable[[], None]]:
    """Execute each operation a second time in FP32 on the run's own tensors."""

    def step() -> None:
        with TwinMode([LocalTwins(StepLog(0, "benchmark"))], Places(lines=True, site=full_call_site), _raise):
            training.compute()
        training.update()

    yield step


@contextlib.contextmanager
def carried_twin(training: Training, _: Path) -> Iterator[Callable[[], None]]:
    """Execute the step in FP32 beside the run's own, and compare the gradients of the parameters."""

    def step() -> None:
        twin = CarriedTwin(FP32)
        with TwinMode([twin], Places(lines=False), _raise):
            training.compute()
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                comparison_vector(parameter.grad, twin.values(parameter.grad), SMALLEST_FP16)
        training.update()

    yield step


def _raise(error: Exception) -> None:
    raise error


OWN: dict[str, Tool] = {
    "vitals": Tool(partial(recorded, every=NEVER, prove=False), "vitals only", warm=FIRST_STEPS),
    "default": Tool(recorded, "as `ampdoctor run`: vitals, some steps examined, second opinions", whole=True),
    "every step": Tool(partial(recorded, every=1, prove=False), "every step examined", warm=FIRST_STEPS),
    "local twins": Tool(local_twins, "each operation again in FP32, every step", most=3, halves=True),
    "carried twin": Tool(carried_twin, "the whole step again in FP32, every step", most=3, halves=True),
}

PEERS: dict[str, Tool] = {
    "hand-rolled": Tool(peers.hand_rolled, "zeros, absmax, any NaN or inf of outputs and their gradients, every step"),
    "transformers": Tool(
        peers.underflow_overflow, "absmin, absmax, NaN, inf of forward tensors, every step", package="transformers"
    ),
    "wandb": Tool(peers.wandb_watch, "histograms of parameters and gradients, every step", 2, 4, package="wandb"),
    "torchlens": Tool(
        peers.torchlens_watch, "7 scalars of outputs, parameters, gradients, every step", most=4, package="torchlens"
    ),
    "anomaly": Tool(peers.anomaly, "torch.autograd.detect_anomaly: NaN in gradients"),
}

NOTHING = "nothing"
TOOLS: dict[str, Tool] = {NOTHING: Tool(nothing, "the noise"), **OWN, **PEERS}
