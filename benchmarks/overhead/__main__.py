"""What recording costs: steps with the recorder, and with other tools, against bare steps.

Each measurement runs in a fresh process, so that no tool disturbs another. In it, blocks of steps with the tool and of
bare steps take turns, so that whatever else the machine does falls on both: half of a pair's bare steps come before the
others, half after. Shown are the median of the pairs' ratios, and the smallest and largest of them. The mode `default`
is a whole recording, its beginning included: of a short run that is a large part. Memory is the process's peak over
that of one where no tool is used.

Other tools are measured where they are installed, and skipped with a word where they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.overhead.measure import Plan, Result
from benchmarks.overhead.table import heading, row
from benchmarks.overhead.tools import NOTHING, OWN, TOOLS
from benchmarks.overhead.training import PRECISIONS, WORKLOADS, default_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


SLOW_RECORDING = 100
"""Steps of a whole recording in half precision on a CPU."""


def at_least(fewest: int) -> Callable[[str], int]:
    """Return what reads a number that must not be smaller."""

    def number(text: str) -> int:
        if int(text) < fewest:
            raise argparse.ArgumentTypeError(f"must be at least {fewest}")
        return int(text)

    return number


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    several = parser.add_argument_group("what to measure; each may be given several times")
    several.add_argument("--workload", action="append", choices=[*WORKLOADS], help="default: all")
    several.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="default: all on a GPU and for the mlp, else fp32"
    )
    several.add_argument("--tool", action="append", choices=[*TOOLS], help="default: all in fp32, else ampdoctor's own")
    parser.add_argument("--scale", choices=["small", "full"], help="size of the batches; default: full on a GPU")
    parser.add_argument(
        "--steps",
        type=at_least(2),
        help="steps of a recording in the mode `default` (500 of the mlp in fp32, else 100)",
    )
    parser.add_argument("--block", type=at_least(1), help="steps of a block in the others (8 or 4)")
    parser.add_argument("--pairs", type=at_least(1), default=5, help="pairs of blocks at most (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="begin no pair after so long, per measurement (%(default)s)"
    )
    parser.add_argument("--threads", type=at_least(1), default=1, help="threads of torch (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the results to FILE, a line each")
    return parser.parse_args(arguments)


def plans(options: argparse.Namespace) -> Iterator[Plan]:
    """Return what is to be measured; of each training first the bare steps, for the noise and for their memory."""
    on_gpu = default_device() == "cuda"
    scale = options.scale or ("full" if on_gpu else "small")
    for workload in options.workload or WORKLOADS:
        found = WORKLOADS[workload]
        for precision in options.precision or (PRECISIONS if on_gpu or workload == "mlp" else PRECISIONS[:1]):
            slow = precision != "fp32" and not on_gpu
            recording = min(found.recording, SLOW_RECORDING) if slow else found.recording
            names = options.tool or (TOOLS if precision == "fp32" else OWN)
            for tool in dict.fromkeys((NOTHING, *names)):
                yield Plan(
                    workload, precision, tool, scale, options.threads, options.steps or recording,
                    options.block or found.block, options.pairs, options.seconds,
                )  # fmt: skip


def why_not(plan: Plan) -> str | None:
    """Return why there is nothing to measure, if so."""
    tool = TOOLS[plan.tool]
    if tool.halves and plan.precision == "fp32":
        return "skipped: nothing is in half precision"
    if tool.package is not None and find_spec(tool.package) is None:
        return f"skipped: {tool.package} is not installed"
    return None


def measured_apart(plan: Plan) -> Result:
    """Measure in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(plan.threads), "MKL_NUM_THREADS": str(plan.threads)}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        arguments = [json.dumps(vars(plan)), str(result)]
        command = [sys.executable, "-m", "benchmarks.overhead.worker", *arguments]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if ended.returncode != 0 or not result.is_file():
            last = (ended.stderr.strip() or "no word").splitlines()[-1]
            return Result(missing=f"failed ({ended.returncode}): {last[:200]}")
        return replace(Result(), **json.loads(result.read_text(encoding="utf-8")))


def surroundings(options: argparse.Namespace) -> str:
    """Return what the numbers depend on."""
    on_gpu = default_device() == "cuda"
    device = torch.cuda.get_device_name() if on_gpu else f"CPU ({platform.machine()}, {os.cpu_count()} cores)"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"torch {torch.__version__}, {device}, {options.threads} thread(s){load}"


def sizes(plan: Plan, parameters: int) -> str:
    """Return how large a training is."""
    found = WORKLOADS[plan.workload]
    batch = found.what.format(*found.sizes[plan.scale])
    return f"- {plan.workload}: {parameters / 1e6:.1f} M parameters, a step is {batch}, AdamW"


def main() -> None:
    """Print the table."""
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the measuring process ends with this one
    print(surroundings(options), heading(), sep="\n\n", flush=True)
    peaks: dict[tuple[str, str], int] = {}
    seen: dict[str, str] = {}
    for plan in plans(options):
        reason = why_not(plan)
        result = Result(missing=reason) if reason is not None else measured_apart(plan)
        training = plan.workload, plan.precision
        if result.missing is None:
            if plan.tool == NOTHING:
                peaks[training] = result.peak_bytes
            seen.setdefault(plan.workload, sizes(plan, result.parameters))
        print(row(plan, result, peaks.get(training)), flush=True)
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result.as_json(plan)) + "\n")
    print("", *seen.values(), *(f"- {name}: {tool.records}" for name, tool in TOOLS.items()), sep="\n")


if __name__ == "__main__":
    main()
