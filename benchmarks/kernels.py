"""What the statistics of one tensor cost: ampdoctor's compiled kernel and its torch operations, against one pass.

The yardsticks are `torch.clone` and `t.abs().max()`, which the memory's bandwidth bounds where a tensor is large. All
take turns in rounds; shown are the median nanoseconds an element, and the medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.stats import StatisticsTable, statistics_vector
from ampdoctor.record.stats.cpu import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    Action = Callable[[torch.Tensor], object]

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
SIZES = [10_000, 1_000_000, 10_000_000]
TURN = 0.004
"""Seconds that a turn lasts at least: small tensors are measured many times in it."""

MOST_CALLS = 2000
CLONE, ABSMAX = "clone", "abs().max()"
YARDSTICKS: dict[str, Action] = {CLONE: torch.clone, ABSMAX: lambda tensor: tensor.abs().max()}


class Found(NamedTuple):
    """One implementation on one tensor: nanoseconds an element, and ratios to the yardsticks."""

    nanoseconds: float
    of_clone: float
    of_absmax: float


def default_device() -> str:
    """Return where the tensors are."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def gradient(numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers such as gradients are: over many binades, a tenth of them zero."""
    torch.manual_seed(0)
    values = torch.randn(numel) * torch.exp2(torch.randint(-14, -6, (numel,)).float())
    values[torch.rand(numel) < 0.1] = 0.0
    return values.to(dtype).to(default_device())


def implementations() -> dict[str, Action]:
    """Return what is measured: the kernel only where it is compiled, and on the CPU."""
    found: dict[str, Action] = {}
    if default_device() == "cpu" and compiled():
        table = StatisticsTable()
        found["compiled"] = lambda tensor: table.measure(0, tensor)
    found["torch operations"] = statistics_vector
    return found


def seconds(action: Action, tensor: torch.Tensor, calls: int) -> float:
    """Return the time of one of so many calls."""
    _synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        action(tensor)
    _synchronize()
    return (time.perf_counter() - began) / calls


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measured(tensor: torch.Tensor, actions: dict[str, Action], rounds: int) -> dict[str, list[float]]:
    """Return the times of each action, in rounds in which the order rotates."""
    calls = {}
    for name, action in actions.items():
        action(tensor)
        calls[name] = min(MOST_CALLS, 1 + int(TURN / max(seconds(action, tensor, 1), 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(actions[name], tensor, calls[name]))
    return times


def found(times: dict[str, list[float]], name: str, numel: int) -> Found:
    """Return the medians for one implementation."""

    def over(other: str) -> float:
        return statistics.median(a / b for a, b in zip(times[name], times[other], strict=True))

    return Found(1e9 * statistics.median(times[name]) / numel, over(CLONE), over(ABSMAX))


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="elements")
    parser.add_argument("--dtypes", nargs="+", choices=[*DTYPES], default=[*DTYPES])
    parser.add_argument("--threads", type=int, nargs="+", help="default: one and all, on a CPU")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = parsed()
    everything = [1] if default_device() == "cuda" else sorted({1, torch.get_num_threads()})
    print(f"torch {torch.__version__}, {default_device()}, {os.cpu_count()} cores; kernel compiled: {compiled()}\n")
    print("| dtype | elements | threads | statistics by | ns per element | of clone | of abs().max() | clone, ns |")
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for dtype in options.dtypes:
        for numel in options.sizes:
            tensor = gradient(numel, DTYPES[dtype])
            for threads in options.threads or everything:
                torch.set_num_threads(threads)
                ours = implementations()
                times = measured(tensor, YARDSTICKS | ours, options.rounds)
                clone = 1e9 * statistics.median(times[CLONE]) / numel
                for name in ours:
                    row = found(times, name, numel)
                    ratios = f"{row.of_clone:.1f}x | {row.of_absmax:.1f}x | {clone:.3f}"
                    print(
                        f"| {dtype} | {numel:,} | {threads} | {name} | {row.nanoseconds:.3f} | {ratios} |", flush=True
                    )


if __name__ == "__main__":
    main()
