"""What twins cost: a step with one twin beside it against the same step plus a plain step in the twin's setting.

Everything is measured side by side in one run: per round each kind of step once, in turn. Reported are medians of the
rounds' ratios. Memory is that of the twins, over the most that the step's own half tensors take at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ampdoctor.record.callsite import full_call_site
from ampdoctor.record.log import StepLog
from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.compare import comparison_vector
from ampdoctor.record.twin.counterfactual import FP32, Counterfactual
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.operations import tensors_of
from ampdoctor.record.twin.place import Places
from benchmarks.overhead import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from ampdoctor.record.twin.mode import Follower

SCALE = 2.0**4
"""The run's own loss scale."""

OTHER_SCALE = 2.0**10

TWINS: dict[str, Counterfactual] = {
    "FP32": FP32,
    "BF16": Counterfactual("bf16"),
    "own format, other scale": Counterfactual("fp16", OTHER_SCALE),
}
NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class Step:
    """One training step of a model, without its optimizer."""

    def __init__(self, model: nn.Module, data: torch.Tensor) -> None:
        self.model, self.data = model, data

    def __call__(self, half: torch.dtype | None, twin: CarriedTwin | None = None) -> None:
        """Run forward and backward under autocast to `half`, or in FP32."""
        self.model.zero_grad()
        device = self.data.device.type
        autocast = torch.autocast(device, dtype=half) if half else contextlib.nullcontext()
        with autocast:
            output = self.model(self.data)
            loss = F.mse_loss(output.float(), torch.zeros_like(output, dtype=torch.float32))
        seed = torch.ones_like(loss)
        if twin is not None and twin.counterfactual.loss_scale:
            twin.seed([seed], twin.counterfactual.loss_scale / SCALE)
        (loss * SCALE).backward(seed)

    def twinned(self, half: torch.dtype, counterfactual: Counterfactual) -> None:
        """Run it with one carried twin, and compare the gradients of the parameters."""
        twin = CarriedTwin(counterfactual)
        with TwinMode([twin], Places(lines=False), _raise):
            self(half, twin)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                comparison_vector(parameter.grad, twin.values(parameter.grad), 2.0**-14)

    def local(self, half: torch.dtype) -> None:
        """Run it with local twins."""
        followers: list[Follower] = [LocalTwins(StepLog(0, "benchmark"))]
        with TwinMode(followers, Places(lines=True, site=full_call_site), _raise):
            self(half)

    def live_half_bytes(self, half: torch.dtype) -> int:
        """Return the most bytes that half tensors take at a time."""
        with _HalfBytes() as watched:
            self(half)
        return int(watched.most)

    def twin_bytes(self, half: torch.dtype, counterfactual: Counterfactual) -> int:
        """Return the most bytes that a twin holds."""
        twin = CarriedTwin(counterfactual)
        with TwinMode([twin], Places(lines=False), _raise):
            self(half, twin)
        return twin.storages.most_bytes


class _HalfBytes(TorchDispatchMode):
    """Adds up the half storages that are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = self._now = 0
        self._alive: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_of(result):
            storage = tensor.untyped_storage()
            if tensor.dtype in HALVES and storage not in self._alive:
                self._alive.add(storage)
                self._now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage.nbytes())
                self.most = max(self.most, self._now)
        return result

    def _gone(self, size: int) -> None:
        self._now -= size


def _raise(error: Exception) -> None:
    raise error


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    began = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measured(step: Step, half: torch.dtype, rounds: int) -> list[tuple[str, float, float, float | None]]:
    """Return (twin, times of the own step, times of own and plain step together, times of the live half memory)."""
    kinds: dict[str, Callable[[], object]] = {"own": lambda: step(half), "FP32": lambda: step(None)}
    kinds["BF16"] = lambda: step(torch.bfloat16)
    kinds["own format, other scale"] = kinds["own"]
    twins = {name: Counterfactual(NAMES[half], OTHER_SCALE) if cf.loss_scale else cf for name, cf in TWINS.items()}
    actions = kinds | {f"+{n}": partial(step.twinned, half, cf) for n, cf in twins.items()}
    actions["+local"] = lambda: step.local(half)
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        seconds(action)
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(seconds(action))
    live = step.live_half_bytes(half)
    rows: list[tuple[str, float, float, float | None]] = []
    for name, plain in [*((n, n) for n in twins), ("local", "FP32")]:
        own, other, both = times["own"], times[plain], times[f"+{name}"]
        ratios = [b / (a + c) for a, b, c in zip(own, both, other, strict=True)]
        of_own = [b / a for a, b in zip(own, both, strict=True)]
        memory = step.twin_bytes(half, twins[name]) / live if name in twins else None
        rows.append((name, statistics.median(of_own), statistics.median(ratios), memory))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--half", choices=["bf16", "fp16", "both"], default="both")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print("| training | twin | of the own step | of own + plain step | memory, of live half tensors |")
    print("|---|---|---:|---:|---:|")
    for name in ("transformer", "cnn"):
        for half, title in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
            if options.half not in {title, "both"}:
                continue
            torch.manual_seed(0)
            make, shape = MODELS[name]
            step = Step(make().to(device), torch.randn(shape, device=device))
            for twin, own, both, memory in measured(step, half, options.rounds):
                cell = f"{memory:.2f}x" if memory is not None else ""
                print(f"| {name}, {title} | {twin} | {own:.2f}x | {both:.2f}x | {cell} |", flush=True)


if __name__ == "__main__":
    main()
