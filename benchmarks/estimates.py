"""How good `ampdoctor whatif` is: estimated against true flushed shares, on the models that twins are tested on.

Each model is recorded for one step at several loss scales, without twins, and asked what FP16 would flush at every
scale from 2^-12 to 2^16. The truth are real runs of the same step: zero at that scale in FP16, nonzero in FP32.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import torch

from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.formats import FP16
from ampdoctor.record.recorder import Recorder
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import prepare_folder
from tests.record.twin.cases import CASES
from tests.record.twin.reference import real_gradients, real_step
from tests.record.twin.setting import Setting
from tests.record.twin.structural import STRUCTURAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.analysis.advice.whatif import Share
    from ampdoctor.trace.run import Run
    from tests.record.twin.training import Case, Parameters

MODELS = tuple(case for case in CASES if torch.float16 in case.halves)
"""What torch can run in FP16 on a CPU."""

RUN_EXPONENTS = (-8, -4, 0, 4, 8, 12)
"""log2 of the loss scales that are recorded."""

EXPONENTS = range(-12, 17)
"""log2 of the loss scales that are asked about."""

LATER = 2
"""Steps before one that twins look at: by then the recorder knows how large gradients are."""

TRIVIAL = 0.002
"""Shares this near to 0 or 1 are no test of an estimate: cases between are called hard."""


@dataclass(frozen=True)
class Point:
    """One question and its answers.

    Attributes:
        model: name of the case.
        run_exponent: log2 of the recorded scale.
        exponent: log2 of the scale asked about.
        truth: flushed share of the weight gradients by two real backward passes.
        share: the answer.
    """

    model: str
    run_exponent: int
    exponent: int
    truth: float
    share: Share

    @property
    def known(self) -> bool:
        """Whether there is an estimate: of gradients that are gone whole nobody can say when they come back."""
        return self.share.estimated is not None

    @property
    def error(self) -> float:
        """Absolute error of the estimate, in percentage points."""
        return 100.0 * abs((self.share.estimated or 0.0) - self.truth)

    @property
    def width(self) -> float:
        """Distance of the bounds, in percentage points."""
        return 100.0 * ((self.share.high or 0.0) - (self.share.low or 0.0))

    @property
    def hard(self) -> bool:
        """The truth is not next to nothing, and not next to everything."""
        return TRIVIAL < self.truth < 1.0 - TRIVIAL

    @property
    def held(self) -> bool:
        """The truth lies within the bounds, to the rounding of a float."""
        low, high = self.share.low, self.share.high
        return low is not None and high is not None and low - 1e-9 <= self.truth <= high + 1e-9


def record(
    case: Case,
    exponents: Sequence[int],
    folder: Path,
    *,
    prove: bool | None = False,
    every: int | None = 1,
    seed: int = 0,
) -> tuple[Run, Parameters]:
    """Record a step at each of the loss scales 2**`exponents`, in turn; return the run and the parameters."""
    gc.collect()  # optimizers of an earlier training that are still alive would be waited for
    training = case.start(seed)
    prepare_folder(folder)
    with Recorder(folder, every=every, prove=prove):
        for exponent in exponents:
            training.run_step(Setting(scale=2.0**exponent))
    return open_run(folder), training.parameters


def truths(
    case: Case, run_exponent: int, exponents: Iterable[int], *, steps_before: int = 0, seed: int = 0
) -> dict[int, tuple[int, int]]:
    """Return by log2 of the scale how many elements are flushed, and how many are nonzero in FP32.

    The step is that after `steps_before` steps at the scale of the run.
    """
    run = Setting(scale=2.0**run_exponent)
    step = real_step(case, run, seed, steps_before=steps_before)
    # Two optimizers: the second half of a step has the weights that the first has updated, the run's in every setting.
    follow = step.updated if "gan" in case.name else None
    full = real_gradients(case, run.to(None), seed, steps_before, before=run, follow=follow)
    nonzero = sum(int(g.count_nonzero()) for g in full.values())
    found = {}
    for exponent in exponents:
        other = Setting(scale=2.0**exponent, scaled_by="hand")
        half = real_gradients(case, other, seed, steps_before, before=run, follow=follow)
        gone = sum(int(((half[name] == 0) & (g != 0)).sum()) for name, g in full.items())
        found[exponent] = gone, nonzero
    return found


def points(
    case: Case, run_exponents: Sequence[int] = RUN_EXPONENTS, *, twins: bool = False, seed: int = 0
) -> list[Point]:
    """Ask what the scales of `EXPONENTS` would flush, of runs at `run_exponents`: a first step, or one with `twins`."""
    before = LATER if twins else 0
    found: list[Point] = []
    truth: dict[int, tuple[int, int]] = {}
    for run_exponent in run_exponents:
        if not truth or twins or "gan" in case.name:  # what the run did before is part of the truth
            truth = truths(case, run_exponent, EXPONENTS, steps_before=before, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            run, _ = record(case, [run_exponent] * (before + 1), Path(folder) / "run", prove=twins, seed=seed)
            recorded = recorded_step(run, before)
            for exponent, (gone, nonzero) in truth.items():
                share = what_if(recorded, FP16, 2.0**exponent).total
                found.append(Point(str(case), run_exponent, exponent, gone / nonzero, share))
    return found


def row(name: str, asked: Sequence[Point]) -> str:
    """Return a line of the table."""
    known = [p for p in asked if p.known]
    hard = [p for p in known if p.hard]
    numbers = (
        f"{len(asked)}", f"{len(asked) - len(known)}", f"{_of(median, known):.2f}", f"{len(hard)}",
        f"{_of(median, hard):.1f}", f"{_of(mean, hard):.1f}",
        f"{100.0 * mean(p.held for p in asked):.1f} %",
        f"{100.0 * mean(p.held for p in hard):.1f} %" if hard else "-",
        f"{mean(p.width for p in asked):.1f}",
        f"{mean(p.width for p in hard):.1f}" if hard else "-",
    )  # fmt: skip
    return f"| {name} | {' | '.join(numbers)} |"


def _of(average: object, asked: Sequence[Point]) -> float:
    return average([p.error for p in asked]) if asked else float("nan")  # type: ignore[operator]


HEAD = (
    "| model | questions | no estimate | median error, pp | hard | median error, hard | mean error, hard "
    "| within bounds | within, hard | width of bounds, pp | width, hard |\n|---|" + "---:|" * 10
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structural", action="store_true", help="the models of zeros instead")
    parser.add_argument("--twins", action="store_true", help="ask of a step with an FP32 twin")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches")
    parser.add_argument("--worst", type=int, default=0, help="print this many worst cases too")
    parser.add_argument("models", nargs="*", help="only these models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD)
    everything: list[Point] = []
    for case in STRUCTURAL if options.structural else MODELS:
        if not options.models or case.name in options.models:
            asked = points(case, twins=options.twins, seed=options.seed)
            everything += asked
            print(row(str(case), asked), flush=True)
    print(row("**all**", everything))
    for exponent in RUN_EXPONENTS:
        of_scale = [p for p in everything if p.run_exponent == exponent]
        print(row(f"recorded at 2^{exponent}", of_scale))
    for p in sorted(everything, key=lambda p: (p.held, -p.error))[: options.worst]:
        print(p.model, p.run_exponent, p.exponent, f"{p.truth:.3f}", p.share, p.held)


if __name__ == "__main__":
    main()
