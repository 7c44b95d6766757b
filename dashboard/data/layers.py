"""The heatmap of layers as numbers: lines of the module tree by examined steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ampdoctor_dashboard.data.cells import Cells, worst_of
from ampdoctor_dashboard.data.flushed import FlushedCounts
from ampdoctor_dashboard.data.held_in import formats_of
from ampdoctor_dashboard.data.measured import measured
from ampdoctor_dashboard.data.metrics import Made, Metric
from ampdoctor_dashboard.data.tree import Lines, lines_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.data.tensors import TensorIndex

COLUMNS = 500
"""Columns of the heatmap: more steps than this share one."""

ESTIMATES = 15_000
"""Tensors that are estimated for one picture; of more, every second step is taken, or every third ..."""


class Heat(NamedTuple):
    """What is drawn.

    Attributes:
        lines: the lines of the tree.
        steps: all examined steps of the role, over which the columns are laid out.
        starts: place in `steps` of each column's first step, and one beyond the last.
        values: lines x columns; NaN where nothing was recorded, or it can't be told.
        where: lines x columns: place in `steps` of the step whose value it is.
        untold: lines x columns: recorded, all zero.
        every: only every so many of the steps was looked at.
    """

    lines: Lines
    steps: NDArray[np.int64]
    starts: NDArray[np.intp]
    values: NDArray[np.float64]
    where: NDArray[np.intp]
    untold: NDArray[np.bool_]
    every: int


def roles_of(index: TensorIndex) -> list[str]:
    """Return the roles that were recorded."""
    return list(dict.fromkeys(site.role for site in index.sites))


def lines_shown(opened: OpenedRun, role: str, toggled: AbstractSet[str]) -> Lines:
    """Return the lines of the tree of a role's sites."""
    sites = opened.tensors.sites
    return lines_of(tree_of(sites, role, opened.table("modules")["module"].to_pylist()), sites, toggled)


def steps_of(opened: OpenedRun, role: str) -> NDArray[np.int64]:
    """Return the steps on which a role was recorded."""
    index = opened.tensors
    return _places(index.step[index.rows_of_role(role)])[0]


def heat(
    opened: OpenedRun, metric: Metric, role: str, toggled: AbstractSet[str], window: tuple[float, float] | None = None
) -> Heat:
    """Return the values of a metric.

    Args:
        opened: the run.
        metric: what is shown.
        role: whose sites.
        toggled: modules that are folded or unfolded by hand.
        window: first and last place in `steps` that is shown; all without.
    """
    index, lines = opened.tensors, lines_shown(opened, role, toggled)
    rows = index.rows_of_role(role)
    steps, column = _places(index.step[rows])
    first, last = _within(window, len(steps))
    shown = (column >= first) & (column < last)
    if not shown.all():
        rows, column = rows[shown], column[shown]
    every = _every(opened, metric, rows)
    if every > 1:
        kept = column % every == 0
        rows, column = rows[kept], column[kept]
    used = np.arange(-(-first // every) * every, last, every)
    cells = Cells(lines.of_site[index.site[rows]], (column - used[0]) // every if len(used) else column, lines.rows,
                  len(used))  # fmt: skip
    values, untold = _values(opened, metric, role, rows, cells, steps[used])
    starts = np.unique(np.linspace(0, len(used), min(COLUMNS, len(used)) + 1).astype(int)[:-1])
    worst, where = worst_of(values, starts, low_is_bad=metric.low_is_bad)
    dark = np.logical_or.reduceat(untold, starts, axis=1) if len(used) else untold
    edges = np.append(used[starts], last) if len(used) else starts
    return Heat(lines, steps, edges, worst, used[np.minimum(where, len(used) - 1)] if len(used) else where,
                dark & np.isnan(worst), every)  # fmt: skip


def worst_site(opened: OpenedRun, metric: Metric, role: str, lines: Lines, line: int, step: int) -> int | None:
    """Return the site with the worst value among those of a line on a step; None where nothing was recorded there."""
    index = opened.tensors
    inside = _below(lines, line)
    rows = index.rows_of_role(role)
    rows = rows[index.step[rows] == step]
    rows = rows[np.isin(lines.of_site[index.site[rows]], inside)]
    sites = np.unique(index.site[rows])
    if not len(sites):
        return None
    place = np.full(len(index.sites), -1, np.intp)
    place[sites] = np.arange(len(sites))
    alone = [lines.rows[line]._replace(parent=-1)] * len(sites)
    cells = Cells(place[index.site[rows]], np.zeros(len(rows), np.intp), alone, 1)
    values = _values(opened, metric, role, rows, cells, np.array([step]))[0][:, 0]
    signed = np.where(np.isnan(values), -np.inf, -values if metric.low_is_bad else values)
    return int(sites[int(np.argmax(signed))])


def _below(lines: Lines, line: int) -> list[int]:
    found = {line}
    for place in range(line + 1, len(lines.rows)):
        if lines.rows[place].parent in found:
            found.add(place)
    return sorted(found)


def _places(step: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the different steps in order, and the place of each of `step` among them."""
    changed = np.flatnonzero(np.diff(step, prepend=step[:1] - 1)) if len(step) else np.zeros(0, np.intp)
    steps, place = np.unique(step[changed], return_inverse=True)
    return steps.astype(np.int64), np.repeat(place, np.diff(changed, append=len(step)))


def _within(window: tuple[float, float] | None, count: int) -> tuple[int, int]:
    if window is None or not count:
        return 0, count
    first = int(np.clip(np.floor(window[0] + 0.5), 0, count - 1))
    return first, int(np.clip(np.floor(window[1] + 0.5) + 1, first + 1, count))


def _every(opened: OpenedRun, metric: Metric, rows: NDArray[np.intp]) -> int:
    if metric.made is not Made.ESTIMATED:
        return 1
    return max(1, -(-_flushed_counts(opened).missing(rows) // ESTIMATES))


def _flushed_counts(opened: OpenedRun) -> FlushedCounts:
    """Return the estimates of a run, kept for as long as it is open."""
    index = opened.tensors
    counts: FlushedCounts = index.derived.setdefault("flushed", FlushedCounts(index))
    counts.reach(index)
    return counts


def _values(
    opened: OpenedRun, metric: Metric, role: str, rows: NDArray[np.intp], cells: Cells, steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the value of each cell, and where it can't be told because everything is zero."""
    if metric.made in {Made.MEASURED, Made.COSINE}:
        return _of_twins(opened, metric, role, rows, cells, steps)
    index = opened.tensors
    numel, zeros, nonfinite = (index.at(name, rows) for name in ("numel", "zeros", "nonfinite"))
    dead = cells.summed(zeros + nonfinite) >= cells.summed(numel)
    all_zero = dead & (cells.summed(zeros) > 0.0)
    never = np.zeros_like(all_zero)
    if metric.made is Made.SHARE:
        return _divided(cells.summed(index.at(metric.column, rows)), cells.summed(numel)), never
    if metric.made is Made.ESTIMATED:
        flushed = cells.summed(_flushed_counts(opened).at(rows))
        alive = cells.summed(numel - zeros - nonfinite)
        return np.where(all_zero, np.nan, _divided(flushed, flushed + alive)), all_zero
    if metric.made is Made.RMS:
        squares = cells.summed(index.at("rms", rows) ** 2 * (numel - nonfinite))
        mean = _divided(squares, cells.summed(numel - nonfinite))
        return np.where(mean > 0.0, 0.5 * np.log2(np.where(mean > 0.0, mean, 1.0)), np.nan), all_zero
    return _room(index, metric, rows, cells), all_zero


def _room(index: TensorIndex, metric: Metric, rows: NDArray[np.intp], cells: Cells) -> NDArray[np.float64]:
    """Return the binades between the largest magnitude and an edge of the format, of the tensor with the fewest."""
    absmax = index.at("absmax", rows)
    size = np.where(absmax > 0.0, np.log2(np.where(absmax > 0.0, absmax, 1.0)), np.nan)
    formats = formats_of(index.sites)
    top = metric.key == "headroom"
    edges = np.array([np.log2(f.max) if top else f.min_subnormal_exponent for f in formats], float)
    edge = edges[index.site[rows]]
    return -cells.largest(-(edge - size if top else size - edge))


def _of_twins(
    opened: OpenedRun, metric: Metric, role: str, rows: NDArray[np.intp], cells: Cells, steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    found = measured(opened, role)
    line_of = np.full(len(opened.tensors.sites), -1, np.intp)
    line_of[opened.tensors.site[rows]] = cells.line
    place = np.searchsorted(steps, found.step)
    known = (place < len(steps)) & (line_of[found.site] >= 0)
    known[known] = steps[place[known]] == found.step[known]
    own = Cells(line_of[found.site[known]], place[known], cells.rows, cells.columns)
    never = np.zeros((len(cells.rows), cells.columns), bool)
    if metric.made is Made.MEASURED:
        return _divided(own.summed(found.flushed[known]), own.summed(found.nonzero[known])), never
    cosine = found.cosine[known]
    gone = own.counted() > 0.0
    worst = -own.largest(-cosine)
    return worst, gone & np.isnan(worst)


def _divided(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(whole > 0.0, part / np.where(whole > 0.0, whole, 1.0), np.nan)
