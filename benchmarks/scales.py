"""How good the recommended loss scale is: against a sweep of real runs, on the models that twins are tested on.

Each model is recorded for some steps at a poor loss scale, as `ampdoctor run` does by default. The largest scale that
ampdoctor then lets through stands beside real runs of the next step at every scale from 2^-12 to 2^24, and training
goes on with it for some steps, on which no gradient may overflow.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ampdoctor.analysis.advice.choosing import recommend
from benchmarks.estimates import MODELS, record
from tests.record.twin.reference import RealStep, real_step
from tests.record.twin.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.record.twin.training import Case

EXPONENTS = range(-12, 25)
"""log2 of the loss scales of the sweep."""

POOR = (-8, 0, 24)
"""log2 of the loss scales that are recorded."""

STEPS = 6
"""Recorded: the second opinion on step 2 and what it leaves open."""

GOES_ON = 10
"""Steps of training with the recommended scale."""

SAME_COSINE = 1e-6
"""FP16's own rounding turns a gradient by more than this."""

SAME_SHARE = 1e-3
"""Flushed shares that differ by less are the same."""


@dataclass(frozen=True)
class Swept:
    """One scale of the sweep.

    Attributes:
        flushed: flushed share of the weight gradients.
        cosine: of all gradients together to those in FP32; NaN where one is not finite.
    """

    flushed: float
    cosine: float


@dataclass(frozen=True)
class Chosen:
    """What was recommended for a model, beside the sweep.

    Attributes:
        model: name of the case.
        poor: log2 of the recorded scale.
        recommended: log2 of the recommended scale; None for none.
        best: log2 of the lowest and the highest scale that are as good as any.
        highest: log2 of the largest scale that does not overflow on that step.
        at: what the sweep has for the recommended scale; None for none.
        overflows: steps of those that follow on which a gradient was not finite.
    """

    model: str
    poor: int
    recommended: int | None
    best: tuple[int, int]
    highest: int
    at: Swept | None
    overflows: int

    @property
    def near(self) -> bool:
        """Within one binade of a best one."""
        return self.recommended is not None and self.best[0] - 1 <= self.recommended <= self.best[1] + 1

    @property
    def fits(self) -> bool:
        """No gradient overflows, on that step and on those that follow."""
        return self.at is not None and not math.isnan(self.at.cosine) and not self.overflows


def sweep(case: Case, poor: Setting, steps_before: int) -> dict[int, Swept]:
    """Return real runs of the step after `steps_before` steps at the poor scale, by log2 of their scale."""
    # By hand: the scaler of the poor scale lives on, and may have moved away from it.
    # Two optimizers: the second half of a step has the weights that the first has updated, the same ones here.
    follow = real_step(case, poor, steps_before=steps_before).updated if "gan" in case.name else None

    def gradients(setting: Setting) -> Mapping[str, torch.Tensor]:
        step = real_step(case, setting, steps_before=steps_before, before=poor, follow=follow)
        return {name: g.double() / setting.scale for name, g in step.gradients.items()}

    full = gradients(poor.to(None))
    return {e: _swept(gradients(Setting(scale=2.0**e, scaled_by="hand")), full) for e in EXPONENTS}


def _swept(half: Mapping[str, torch.Tensor], full: Mapping[str, torch.Tensor]) -> Swept:
    x, y = (torch.cat([g[name].flatten() for name in full]) for g in (half, full))
    flushed = int(((x == 0) & (y != 0)).sum()) / int(y.count_nonzero())
    return Swept(flushed, float(torch.dot(x, y) / x.norm() / y.norm()) if x.any() else 0.0)


def best(swept: Mapping[int, Swept]) -> tuple[int, int]:
    """Return the lowest and the highest scale that are as good as any, as log2."""
    fitting = {e: s for e, s in swept.items() if not math.isnan(s.cosine)}
    most = max(s.cosine for s in fitting.values())
    straight = {e: s for e, s in fitting.items() if s.cosine >= most - SAME_COSINE}
    least = min(s.flushed for s in straight.values())
    good = [e for e, s in straight.items() if s.flushed <= least + SAME_SHARE]
    return min(good), max(good)


def choose(case: Case, poor_exponent: int, *, steps: int = STEPS, goes_on: int = GOES_ON) -> Chosen:
    """Record `case` at a poor scale, and hold what is recommended against real runs."""
    poor = Setting(scale=2.0**poor_exponent)
    with tempfile.TemporaryDirectory() as folder:
        run, _ = record(case, [poor_exponent] * steps, Path(folder) / "run", prove=None, every=None)
        scale = recommend(run).largest_scale
    swept = sweep(case, poor, steps)
    exponent = None if scale is None else round(math.log2(scale))
    return Chosen(
        str(case), poor_exponent, exponent, best(swept),
        max(e for e, s in swept.items() if not math.isnan(s.cosine)),
        None if exponent is None else swept.get(exponent),
        0 if scale is None else _overflows(case, poor, scale, (steps, goes_on)),
    )  # fmt: skip


def _overflows(case: Case, poor: Setting, scale: float, steps: tuple[int, int]) -> int:
    """Return on how many steps a gradient overflows if training goes on with `scale`."""
    training, times = case.start(0), 0
    for _ in range(steps[0]):
        training.run_step(poor)
    for _ in range(steps[1]):
        step = RealStep()
        training.run_step(Setting(scale=scale, scaled_by="hand"), step)
        times += not all(bool(g.isfinite().all()) for g in step.gradients.values())
    return times


HEAD = (
    "| model | recorded at | recommended | best by real runs | largest that fits | flushed there | cosine there "
    "| within a binade | steps that overflow |\n|---|" + "---:|" * 8
)


def row(c: Chosen) -> str:
    """Return a line of the table."""
    there = ("-", "-") if c.at is None else (f"{100 * c.at.flushed:.2g} %", f"{min(c.at.cosine, 1.0):.6f}")
    recommended = "-" if c.recommended is None else f"2^{c.recommended}"
    numbers = (
        f"2^{c.poor}", recommended, f"2^{c.best[0]} to 2^{c.best[1]}", f"2^{c.highest}", *there,
        "yes" if c.near else "**no**", f"{c.overflows} of {GOES_ON}",
    )  # fmt: skip
    return f"| {c.model} | {' | '.join(numbers)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="only these models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD)
    chosen: list[Chosen] = []
    for case in MODELS:
        if not options.models or case.name in options.models:
            for poor in POOR:
                chosen.append(choose(case, poor))
                print(row(chosen[-1]), flush=True)
    given = [c for c in chosen if c.recommended is not None]
    near, fit = sum(c.near for c in given), sum(c.fits for c in given)
    print(f"\nA scale for {len(given)} of {len(chosen)}: within a binade of a best one {near}, without overflow {fit}.")


if __name__ == "__main__":
    main()
