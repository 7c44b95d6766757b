"""Where number formats begin and end, on the axis of a spectrogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor_dashboard.data.held_in import formats_of
from ampdoctor_dashboard.data.spectrum import bands_of
from ampdoctor_dashboard.figures.spectrogram import Edge
from ampdoctor_dashboard.theme import CATEGORY
from ampdoctor_dashboard.widgets.step_bars import band_name

if TYPE_CHECKING:
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.data.spectrum import Spectrum
    from ampdoctor_dashboard.words import Words


def format_edges(run: OpenedRun, found: Spectrum, number: int, words: Words) -> list[Edge]:
    """Return what the narrow formats hold of a site, step by step: the run's own loss scale may change."""
    site = run.tensors.sites[number]
    own = formats_of(run.tensors.sites)[number]
    last = bands_of(site.role, float(found.scale[-1]) if len(found.scale) else 0.0, unscaled=found.unscaled)
    edges = []
    for band in last:
        ours = band.number_format is own and (band.scale is None or band.own)
        if band.number_format.name not in {"fp16", "e5m2"} and not ours:
            continue
        moves = found.scale - found.scale[-1]
        moved = (-moves if found.unscaled else 0.0 * moves) if band.own else (0.0 * moves if found.unscaled else moves)
        name = band_name(band, words)
        color = CATEGORY[band.number_format.name]
        edges.append(
            Edge(name, color, band.edge + moved, band.normal + moved if ours else None, band.end + moved, own=ours)
        )
    return edges
