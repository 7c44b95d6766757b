"""Other tools that people look for numeric trouble with, each attached as its documentation says.

None of them is needed by the project: one that is not installed raises ImportError, and is skipped with that reason.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from benchmarks.overhead.training import Training


class HandRolled:
    """The monitor that people write: hooks on each layer that fetch a few numbers, and a line of JSON a step."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float, bool]] = []

    def look(self, name: str, tensor: torch.Tensor) -> None:
        """Take the numbers of one tensor."""
        tensor = tensor.detach()
        broken = bool((torch.isnan(tensor) | torch.isinf(tensor)).any().item())
        self.rows.append((name, (tensor == 0).float().mean().item(), tensor.abs().max().item(), broken))

    def hook(self, name: str, module: nn.Module) -> list[Any]:
        """Watch what a layer gives, and the gradient of that."""

        def forward(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            self.look(name, output)

        def backward(_module: nn.Module, _inputs: Any, outputs: tuple[torch.Tensor, ...]) -> None:
            self.look(f"{name}.grad", outputs[0])

        return [module.register_forward_hook(forward), module.register_full_backward_hook(backward)]


@contextlib.contextmanager
def hand_rolled(training: Training, folder: Path) -> Iterator[Callable[[], None]]:
    """Attach the hand-rolled monitor."""
    monitor = HandRolled()
    handles = [handle for name, module in training.leaves().items() for handle in monitor.hook(name, module)]

    with (folder / "monitor.jsonl").open("a", encoding="utf-8") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")

        def step() -> None:
            training.step()
            file.write(json.dumps(monitor.rows) + "\n")
            monitor.rows.clear()

        yield step
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def underflow_overflow(training: Training, _: Path) -> Iterator[Callable[[], None]]:
    """Attach DebugUnderflowOverflow of Hugging Face's transformers, which has no way to detach."""
    debug: Any = importlib.import_module("transformers.debug_utils")
    modules = list(training.model.modules())
    before = [list(module._forward_hooks) for module in modules]  # noqa: SLF001
    debug.DebugUnderflowOverflow(training.model)
    yield training.step
    for module, own in zip(modules, before, strict=True):
        for key in [key for key in module._forward_hooks if key not in own]:  # noqa: SLF001
            del module._forward_hooks[key]  # noqa: SLF001


@contextlib.contextmanager
def wandb_watch(training: Training, folder: Path) -> Iterator[Callable[[], None]]:
    """Attach `wandb.watch`, offline, for everything that it watches and on every step."""
    names = ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR", "ARTIFACT_DIR")
    os.environ.update({f"WANDB_{name}": str(folder) for name in names}, WANDB_MODE="offline", WANDB_SILENT="true")
    wandb: Any = importlib.import_module("wandb")
    if wandb.run is None:  # starting one takes seconds; it ends with the process
        wandb.init(project="overhead", dir=str(folder), settings=wandb.Settings(console="off"))
    wandb.watch(training.model, log="all", log_freq=1)

    def step() -> None:
        training.step()
        wandb.log({"loss": training.loss.item()})

    try:
        yield step
    finally:
        wandb.unwatch(training.model)


@contextlib.contextmanager
def torchlens_watch(training: Training, folder: Path) -> Iterator[Callable[[], None]]:
    """Attach the watcher of TorchLens to all that it watches, without histograms."""
    trackers: Any = importlib.import_module("torchlens.trackers")
    sink = trackers.JSONLSink(Path(tempfile.mkdtemp(dir=folder)) / "watch.jsonl")
    session = trackers.watch(
        training.model, to=sink, signals=("activations", "parameters", "gradients"), select=tuple(training.leaves()),
        optimizer=training.optimizer, every=1, example_input=training.batches[0][0],
    )  # fmt: skip
    scaler = {"scaler": training.scaler} if training.scaler.is_enabled() else {}
    steps = iter(range(1 << 40))

    def step() -> None:
        with session.step(next(steps), **scaler):
            training.step()

    with session:
        yield step


@contextlib.contextmanager
def anomaly(training: Training, _: Path) -> Iterator[Callable[[], None]]:
    """Switch torch's anomaly detection on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        with torch.autograd.detect_anomaly(check_nan=True):
            yield training.step
