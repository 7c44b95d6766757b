"""What was recorded over the steps behind a finding: at the site that it names first, and of what its rule reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.errors import UnknownRuleError
from ampdoctor.rules import find_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.opened import OpenedRun

_SITE = re.compile(r"(?P<name>.*) \((?P<role>[a-z_]+)\)")

_GRADIENTS = ("grad_output", "weight_grad")

MOST = 3
"""Charts of one finding."""

COLUMNS = ("loss", "loss_scale", "grad_norm", "lr", "wall_ms", "held_graphs", "allocated_bytes", "peak_bytes")
"""Columns of `steps` that are worth a chart."""

MOST_SITES = 8
"""Sites of a finding that are looked at for a chart."""

_OF_TABLES = {"steps": "loss", "scaler": "loss_scale", "timings": "wall_ms", "paces": "wall_ms"}
"""The column of `steps` that shows what a rule sees which reads a table."""


@dataclass(frozen=True)
class Recorded:
    """One thing over the steps.

    Attributes:
        what: column of `tensors` or `steps`, or `zero_share`, `nonfinite_share`.
        step: the steps on which it is known.
        value: what it was.
        site: where; empty for what belongs to the whole step.
    """

    what: str
    step: NDArray[np.float64]
    value: NDArray[np.float64]
    site: str = ""


def site_key(text: str) -> str:
    """Return the key of a site that findings call `module.slot (role)`; empty where it is none."""
    match = _SITE.fullmatch(text)
    return f"{match['role']}:{match['name']}" if match else ""


def known_sites(opened: OpenedRun, texts: Iterable[str]) -> dict[str, int]:
    """Return those of the sites that findings name which tensors were recorded at, with their numbers.

    A finding may name a module where it means all of one role in it: its first site stands for them.
    """
    wanted = {site_key(text): text for text in texts}
    exact: dict[str, int] = {}
    within: dict[str, int] = {}
    for number, site in enumerate(opened.tensors.sites):
        if site.key in wanted:
            exact[wanted[site.key]] = number
        if (module := f"{site.role}:{site.module}") in wanted:
            within.setdefault(wanted[module], number)
    return within | exact


def recorded_behind(opened: OpenedRun, finding: Finding) -> list[Recorded]:
    """Return what shows best, step by step, what the finding is about."""
    known = known_sites(opened, finding.location.sites)
    numbers = [known[site] for site in finding.location.sites if site in known]
    return [*_at_sites(opened, numbers[:MOST_SITES]), *_of_steps(opened, finding)][:MOST]


def _at_sites(opened: OpenedRun, numbers: list[int]) -> list[Recorded]:
    """Return of each thing what it was at the first of these sites where it was anything but zero."""
    found: dict[str, Recorded] = {}
    for number in numbers:
        for own in _at_site(opened, number):
            known = found.get(own.what)
            if known is None or (own.value.any() and not known.value.any()):
                found[own.what] = own
    return [own for own in found.values() if own.value.any() or own.what != "nonfinite_share"]


def _at_site(opened: OpenedRun, number: int) -> list[Recorded]:
    index, site = opened.tensors, opened.tensors.sites[number]
    rows = index.rows_of(number)
    step, place = np.unique(index.step[rows], return_inverse=True)

    def summed(column: str) -> NDArray[np.float64]:
        return np.bincount(place, index.column(column)[rows]).astype(float)

    def largest(column: str) -> NDArray[np.float64]:
        found = np.zeros(len(step))
        np.maximum.at(found, place, index.column(column)[rows])
        return found

    numel, at = np.maximum(summed("numel"), 1.0), (step.astype(float), site.name)
    nonfinite, zeros = summed("nonfinite") / numel, summed("zeros") / numel
    found = [Recorded("nonfinite_share", at[0], nonfinite, at[1])]
    if site.role in _GRADIENTS:
        found.append(Recorded("zero_share", at[0], zeros, at[1]))
    return [*found, Recorded("absmax", at[0], largest("absmax"), at[1])]


def _of_steps(opened: OpenedRun, finding: Finding) -> list[Recorded]:
    """Return the columns of `steps` that the evidence is about or the rule reads, where there is something in them."""
    about = [_named_by(evidence.name) for evidence in finding.evidence]
    names = dict.fromkeys(name for name in [*about, *map(_column_of, _needs(finding.name))] if name)
    steps, found = opened.steps, []
    for name in names:
        values = steps.column(name)
        if np.isfinite(values).any():
            found.append(Recorded(name, steps.step.astype(float), values))
    return found


def _named_by(evidence: str) -> str:
    """Return the column that the name of a number begins with: `loss_scale` of `loss_scale_at_end`."""
    return max((c for c in COLUMNS if evidence == c or evidence.startswith(f"{c}_")), key=len, default="")


def _needs(rule: str) -> tuple[str, ...]:
    try:
        return find_rule(rule).needs
    except UnknownRuleError:  # a finding of another version
        return ()


def _column_of(need: str) -> str:
    table, _, column = need.partition(".")
    return column if table == "steps" and column in COLUMNS else _OF_TABLES.get(table, "")
