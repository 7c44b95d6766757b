"""What a run's memory and time are drawn as: the run's own numbers put into the figures of memory and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.memory.layouts import COMPONENTS, layouts_at
from ampdoctor.analysis.memory.ledgers import ledgers, total
from ampdoctor.analysis.speed import is_cast
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor_dashboard.data.gpu import telemetry
from ampdoctor_dashboard.data.memory import Chosen, chosen_ledger, chosen_speed, costs, kept_by_module
from ampdoctor_dashboard.figures.gpu import telemetry_figure
from ampdoctor_dashboard.figures.layouts import kept_bars, layout_bars
from ampdoctor_dashboard.figures.memory import Area, Stack, by_module, over_steps, phase_title, stacked
from ampdoctor_dashboard.figures.speed import grouped, pace_bars, time_bars
from ampdoctor_dashboard.figures.style import nothing
from ampdoctor_dashboard.figures.thinning import thinned
from ampdoctor_dashboard.figures.treemap import treemap

if TYPE_CHECKING:
    from collections.abc import Callable

    import plotly.graph_objects as go

    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TimingRow
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

MOST_LEDGERS = 400
"""Steps that the areas are drawn over."""


def why_no_memory(run: Run, words: Words) -> tuple[str, str]:
    """Return why no memory was recorded, and what would change that."""
    why = words("this run has recorded no memory")
    if run.info.world_size > 1:
        return why, words("it is followed in trainings of a single process only")
    if len(run.steps) <= 4:
        return why, words("memory is followed from the fifth step on, and this run has fewer: record more steps")
    return why, words("the model is compiled, or it was recorded with --no-prove or by an older version")


def why_no_times(words: Words) -> str:
    """Return why no operation was timed, and what would change that."""
    return words("no operations were timed: it takes a fifth step, a single process, no torch.compile, no --no-prove")


def _of_ledger(
    draw: Callable[[Run, Chosen, Style, str], go.Figure],
) -> Callable[[OpenedRun, int | None, str, Style], go.Figure]:
    """Return `draw` as a figure of any run: of one without recorded memory it says why."""

    def drawn(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
        run = costs(opened)
        found = chosen_ledger(run, step, phase)
        if found is None:
            return nothing(style, *why_no_memory(run, style.words))
        return draw(run, found, style, f"{opened.id}-{opened.rank}-{found.ledger.step}")

    return drawn


@_of_ledger
def boxes(run: Run, found: Chosen, style: Style, keep: str) -> go.Figure:
    """Return the components at the chosen moment as boxes in boxes."""
    return treemap(found.ledger.at(found.phase), style, keep=f"{keep}-{found.phase}")


@_of_ledger
def moments(run: Run, found: Chosen, style: Style, keep: str) -> go.Figure:
    """Return the components at each moment of the chosen step."""
    ledger, words = found.ledger, style.words
    stacks = _stacks([(ledger, phase) for phase in ledger.phases])
    titles = [phase_title(phase, words) for phase in ledger.phases]
    return stacked(titles, stacks, style, axis=words("moment of step {step}", step=ledger.step), keep=keep)


@_of_ledger
def modules(run: Run, found: Chosen, style: Style, keep: str) -> go.Figure:
    """Return what the modules keep for the backward pass."""
    return by_module(kept_by_module(found.ledger), style, keep=keep)


@_of_ledger
def other_layouts(run: Run, found: Chosen, style: Style, keep: str) -> go.Figure:
    """Return each moment of the chosen step in each layout."""
    by_phase = {phase: layouts_at(run, found.ledger, phase) for phase in found.ledger.phases}
    return layout_bars(by_phase, style, keep=keep)


def steps(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return the chosen moment on every step whose memory was recorded, and what CUDA's allocator said on all."""
    run, words = costs(opened), style.words
    found = chosen_ledger(run, step, phase)
    at = found.phase if found else phase
    kept = [ledger for ledger in ledgers(run).values() if at in ledger.phases]
    kept = kept[:: max(1, -(-len(kept) // MOST_LEDGERS))]
    lines = [
        _line(opened, words("peak so far, allocator"), "peak_bytes"),
        _line(opened, words("allocated at the end of the step"), "allocated_bytes"),
    ]
    there = tuple(line for line in lines if line is not None)
    if not kept and not there:
        return nothing(style, *why_no_memory(run, words))
    stacks = _stacks([(ledger, at) for ledger in kept])
    return over_steps(Area(tuple(x.step for x in kept), stacks, there), style, keep=f"{opened.id}-{opened.rank}")


def _line(opened: OpenedRun, name: str, column: str) -> tuple[str, list[float], list[float]] | None:
    values = opened.steps.column(column)
    if not np.isfinite(values).any():
        return None
    kept = thinned(values)
    return name, opened.steps.step[kept].tolist(), values[kept].tolist()


def _stacks(places: list[tuple[Ledger, str]]) -> tuple[Stack, ...]:
    stacks = (Stack(c, tuple(total(ledger.at(phase, c)) for ledger, phase in places)) for c in COMPONENTS)
    return tuple(stack for stack in stacks if any(stack.bytes))


def kept_in_each(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return what the modules keep in each precision, measured."""
    return kept_bars(costs(opened).paces, style, keep=opened.id)


def paces(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return how long forward and backward take in each precision, measured."""
    return pace_bars(costs(opened).paces, style, keep=opened.id)


def gpu(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return what the driver said of the GPUs."""
    return telemetry_figure(telemetry(opened), opened.info.gpu_telemetry, style, keep=opened.id)


def by_operation(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return the time of the step's operations by operation; casts are told apart."""
    cast = style.words("dtype casts")
    return _times(opened, step, style, lambda row: cast if is_cast(row) else row.op)


def by_dtype(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return it by the dtype of the result."""
    other = style.words("other")

    def title(row: TimingRow) -> str:
        dtype = row.dtype_out
        return other if not dtype else title_of_dtype(dtype) if format_of_dtype(dtype) else dtype

    return _times(opened, step, style, title)


def by_place(opened: OpenedRun, step: int | None, phase: str, style: Style) -> go.Figure:
    """Return it by module."""
    words = style.words
    return _times(
        opened, step, style,
        lambda row: words("outside of modules") if row.module is None else row.module or words("the model itself"),
    )  # fmt: skip


def _times(opened: OpenedRun, step: int | None, style: Style, name: Callable[[TimingRow], str | None]) -> go.Figure:
    speed = chosen_speed(costs(opened), step)
    if speed is None:
        return nothing(style, why_no_times(style.words))
    keep = f"{opened.id}-{opened.rank}-{speed.step}"
    why = style.words("no operation was seen in this step")
    return time_bars(grouped(speed, name), speed.total_ms, style, keep=keep, why_empty=why)
