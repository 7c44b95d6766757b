"""The timeline of a run: its own numbers put into the figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ampdoctor.finding import Severity
from ampdoctor_dashboard.data import timeline as data
from ampdoctor_dashboard.figures.timeline import Line, Mark, Timeline, Vital
from ampdoctor_dashboard.theme import ORANGE, PINK, VERMILION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.words import Words

FEW = 40
"""Points of a line that are also shown as dots."""


def timeline_of(
    run: OpenedRun, words: Words, found: Iterable[Finding] = (), *, over_time: bool = False, step: int | None = None
) -> Timeline:
    """Return what the timeline of a run shows.

    Args:
        run: the run.
        words: in which language.
        found: findings that are drawn as bands, where they are more than notes.
        over_time: over seconds and not over steps.
        step: the chosen step.
    """
    if not len(run.steps):
        return Timeline(())
    steps = run.steps
    places = dict(zip(steps.step.tolist(), steps.elapsed_s.tolist(), strict=True)) if over_time else {}

    def at(step: NDArray[Any]) -> NDArray[np.float64]:
        return np.array([places.get(int(s), np.nan) for s in step]) if over_time else step.astype(float)

    return Timeline(
        _vitals(run, words, at),
        _marks(run, words, at),
        _bands(run, found, at),
        words("seconds since the first step [s]") if over_time else words("step"),
        float(at(np.array([step]))[0]) if step is not None else None,
        keep=f"{run.id}-{run.rank}-{'time' if over_time else 'step'}",
    )


def _vitals(run: OpenedRun, words: Words, at: Callable[[NDArray[Any]], NDArray[np.float64]]) -> tuple[Vital, ...]:
    column = run.steps.column

    def line(name: str, points: tuple[NDArray[Any], NDArray[np.float64]], *, dots: bool = False) -> Line:
        return Line(name, at(points[0]), points[1], dots or len(points[0]) < FEW)

    def own(name: str, values: NDArray[np.float64]) -> Line:
        return Line(name, at(run.steps.step), values)

    norm = words("gradient norm, unscaled")
    zeros, subnormal = data.shares_by_step(run, "weight_grad", "zeros", "subnormal")
    return (
        Vital(
            "loss",
            words("loss"),
            (
                own(words("loss of the run"), column("loss")),
                line(words("loss of the FP32 twin (measured)"), data.loss_in_fp32(run), dots=True),
            ),
            words("no backward() from a scalar was seen"),
        ),
        Vital(
            "scale",
            words("loss scale"),
            (own(words("loss scale"), column("loss_scale")),),
            words("no enabled GradScaler: nothing scales the loss"),
            log2=True,
        ),
        Vital(
            "norm",
            norm,
            (own(norm, data.unscaled_norm(run)),),
            words("the training does not call clip_grad_norm_, which returns it"),
            log=True,
        ),
        Vital(
            "zeros",
            words("share of the weight gradients' elements [%]"),
            (
                line(words("zero (observed, of any cause)"), zeros),
                line(words("subnormal (observed)"), subnormal),
                line(words("flushed (measured)"), data.measured_flushed(run), dots=True),
            ),
            words("no weight gradient was recorded: no step was examined yet"),
            share=True,
        ),
        Vital(
            "lr",
            words("learning rate"),
            (own(words("learning rate"), column("lr")),),
            words("no optimizer with a learning rate stepped"),
        ),
        Vital(
            "wall",
            words("step time [ms]"),
            (own(words("step time"), column("wall_ms")),),
            words("no step has ended yet"),
        ),
    )


def _marks(run: OpenedRun, words: Words, at: Callable[[NDArray[Any]], NDArray[np.float64]]) -> tuple[Mark, ...]:
    kinds = (
        (words("step skipped"), run.steps.skipped, VERMILION),
        (words("scale backed off"), data.scaler_steps(run, "backoff"), ORANGE),
        (words("scale grew"), data.scaler_steps(run, "growth"), PINK),
    )
    return tuple(Mark(name, at(steps), color) for name, steps, color in kinds)


def _bands(
    run: OpenedRun, found: Iterable[Finding], at: Callable[[NDArray[Any]], NDArray[np.float64]]
) -> tuple[Mark, ...]:
    bands = []
    for finding in found:
        first, last = finding.location.first_step, finding.location.last_step
        if finding.severity is Severity.NOTE or first is None:
            continue
        ends = at(np.array([first, run.steps.step[-1] if last is None else last]))
        color = VERMILION if finding.severity is Severity.ERROR else ORANGE
        bands.append(Mark(finding.name, ends[:1], color, float(ends[1])))
    return tuple(bands)
