"""One measurement: a training's steps with a tool against its bare steps, in turn, in one process of its own."""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.trace.run import open_run
from benchmarks.overhead.tools import TOOLS, Tool
from benchmarks.overhead.training import Training, synchronize

if TYPE_CHECKING:
    from collections.abc import Callable

WARM = 3
"""Bare steps before anything is measured: the optimizer makes its state on the first."""

FEWEST_PAIRS = 3
"""Pairs that are measured however long they take, where a pair is not a whole recording."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes:
        workload, precision, tool: names.
        scale: size of the batches.
        threads: threads of torch.
        steps: steps of a whole recording.
        block: steps of a block.
        pairs: pairs of blocks at most.
        seconds: after this long no pair is begun.
    """

    workload: str
    precision: str
    tool: str
    scale: str
    threads: int
    steps: int
    block: int
    pairs: int
    seconds: float


@dataclass
class Result:
    """What was found: a skipped or failed measurement holds the reason and nothing else.

    Attributes:
        wall: of each pair, time with the tool over time without.
        cpu: the same for the process's CPU time, which other work on the machine moves less.
        later: the same as `wall` for the second half of whole recordings.
        bare_ms: median wall time of a bare step.
        peak_bytes: largest resident memory of the process; on a GPU, the most that was allocated there.
        written: bytes written per step; of a whole recording, its beginning included.
        examined: steps examined, and steps, of the last recording.
        parameters: of the model.
        missing: why there is nothing.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    bare_ms: float = 0.0
    peak_bytes: int = 0
    written: float = 0.0
    examined: tuple[int, int] | None = None
    parameters: int = 0
    missing: str | None = None

    def as_json(self, plan: Plan) -> dict[str, Any]:
        """Return everything as one flat object."""
        return {**asdict(plan), **asdict(self)}


@dataclass(frozen=True)
class Times:
    """Seconds that some steps took."""

    wall: float
    cpu: float
    steps: int

    def __add__(self, other: Times) -> Times:
        return Times(self.wall + other.wall, self.cpu + other.cpu, self.steps + other.steps)

    def over(self, bare: Times) -> tuple[float, float]:
        """Return the ratios of a step's wall and CPU time to those of a bare one."""
        each = bare.steps / self.steps
        return each * self.wall / bare.wall, each * self.cpu / bare.cpu


def timed(step: Callable[[], None], steps: int) -> Times:
    """Time so many steps."""
    synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    synchronize()
    return Times(time.perf_counter() - wall, time.process_time() - cpu, steps)


def bare(training: Training, steps: int) -> Times:
    """Time bare steps; one before them sets caches right."""
    gc.collect()
    training.step()
    return timed(training.step, steps)


class Measurement:
    """Blocks under way, each with the tool and between bare ones."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.tool: Tool = TOOLS[plan.tool]
        self.plan, self.folder = plan, folder
        self.training = Training(plan.workload, plan.precision, plan.scale)
        self.steps = plan.steps if self.tool.whole else min(plan.block, self.tool.most or plan.block)
        self.pairs: list[tuple[Times, Times]] = []
        self.later: list[float] = []
        for _ in range(WARM):
            self.training.step()

    def run(self) -> Result:
        """Measure."""
        fixed = self._fixed_bytes()
        before, end = folder_bytes(self.folder), time.perf_counter() + self.plan.seconds
        fewest = 1 if self.tool.whole else min(FEWEST_PAIRS, self.plan.pairs)
        while len(self.pairs) < fewest or (len(self.pairs) < self.plan.pairs and time.perf_counter() < end):
            self.pairs.append(self._pair())
        peak = peak_bytes()  # before the recording is read
        steps = sum(tool.steps for _, tool in self.pairs)
        written = (folder_bytes(self.folder) - before - len(self.pairs) * fixed) / steps
        ratios = [tool.over(bare) for bare, tool in self.pairs]
        return Result(
            wall=[wall for wall, _ in ratios], cpu=[cpu for _, cpu in ratios], later=self.later,
            bare_ms=1e3 * statistics.median(bare.wall / bare.steps for bare, _ in self.pairs),
            peak_bytes=peak, written=max(0.0, written), examined=examined(self.folder),
            parameters=self.training.parameters,
        )  # fmt: skip

    def _fixed_bytes(self) -> int:
        """Return what the tool writes before the clock starts; the first time it may write more, once for all."""
        if self.tool.whole:
            return 0
        sizes = []
        for _ in range(2):
            with self.tool.attach(self.training, self.folder) as step:
                self._warm(step)
            sizes.append(folder_bytes(self.folder))
        return sizes[1] - sizes[0]

    def _pair(self) -> tuple[Times, Times]:
        """Time a block with the tool, or a whole recording, and bare steps before and after it."""
        half = self.steps // 2
        around = (half + 1) // 2 if self.tool.whole else self.steps - half
        before = bare(self.training, around)
        with self.tool.attach(self.training, self.folder) as step:
            self._warm(step)
            first, second = timed(step, self.steps - half), timed(step, half)
        both = before + bare(self.training, around)
        if self.tool.whole:
            self.later.append(second.over(both)[0])
        return both, first + second

    def _warm(self, step: Callable[[], None]) -> None:
        """Take the steps before the clock starts; as before a bare block, one comes after the garbage is gone."""
        warm = 0 if self.tool.whole else self.tool.warm
        for left in range(warm, 0, -1):
            if left == 1:
                gc.collect()
            step()
        if warm:
            time.sleep(_SETTLES_S)


_SETTLES_S = 0.5
"""Until a tool that writes on a thread of its own has written the steps before the clock starts."""


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def peak_bytes() -> int:
    """Return the most memory taken so far."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def examined(folder: Path) -> tuple[int, int] | None:
    """Return how many steps of the newest recording were examined, and how many there are."""
    runs = sorted(folder.glob("run-*"), key=lambda run: run.stat().st_mtime)
    if not runs:
        return None
    flags = open_run(runs[-1]).table("steps").column("examined").to_pylist()
    return sum(flags), len(flags)


def measured(plan: Plan) -> Result:
    """Measure in this process; a tool that is not installed is no error."""
    torch.set_num_threads(plan.threads)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            return Measurement(plan, Path(folder)).run()
        except ImportError as error:
            return Result(missing=f"skipped: {error}")
