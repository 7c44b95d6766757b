"""What a page shows of a run, as the address holds it: whoever gets the link sees the same."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 2000
"""Characters of one value that are taken from an address."""


@dataclass(frozen=True)
class View:
    """What is shown. All of it is text, as in the address; empty where nothing was chosen.

    Attributes:
        run: id of the run in the library.
        rank: whose recording.
        step: the chosen step.
        site: the chosen site, `role:module.slot`.
        role: the role whose sites are listed.
        metric: the metric of the heatmap.
        format: the number format asked about.
        scale: log2 of the loss scale asked about.
        open: modules that were folded or unfolded in the tree by hand, joined by `~`.
        beside: ids of the runs to compare with, joined by `~`.
        axis: what steps are drawn over: step or time.
        phase: the moment whose memory is shown.
        finding: the finding that is unfolded.
        only: the sites that are listed, as a glob.
        station: the station of the pipeline whose details are shown.
        op: the operation that is looked into, by its order within the step.
        scaling: whether the loss scale is divided out of a spectrum.
        lang: language, where it was chosen.
    """

    run: str = ""
    rank: str = ""
    step: str = ""
    site: str = ""
    role: str = ""
    metric: str = ""
    format: str = ""
    scale: str = ""
    open: str = ""
    beside: str = ""
    axis: str = ""
    phase: str = ""
    finding: str = ""
    only: str = ""
    station: str = ""
    op: str = ""
    scaling: str = ""
    lang: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> View:
        """Return the view with these values; what is unknown or no text is left out."""
        known = {f.name for f in fields(cls)}
        given = {k: str(v)[:LONGEST] for k, v in (values or {}).items() if k in known and v is not None}
        return cls(**given)

    @classmethod
    def of_query(cls, query: str) -> View:
        """Return the view that the query of an address (`?run=a&step=3`) holds."""
        return cls.of(dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)))

    def with_(self, **changes: object) -> View:
        """Return the view with other values; None takes one away."""
        return replace(self, **{name: "" if value is None else str(value) for name, value in changes.items()})

    @property
    def values(self) -> dict[str, str]:
        """What was chosen, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name))}

    @property
    def query(self) -> str:
        """The query of the address."""
        return "?" + urlencode(self.values) if self.values else ""

    @property
    def step_number(self) -> int | None:
        """The chosen step as a number; None where there is none, or it is no number."""
        return _number(self.step)

    @property
    def rank_number(self) -> int | None:
        """The chosen rank as a number, likewise."""
        return _number(self.rank)

    @property
    def opened_modules(self) -> frozenset[str]:
        """The modules that were folded or unfolded by hand."""
        return frozenset(part for part in self.open.split("~") if part)

    @property
    def beside_runs(self) -> tuple[str, ...]:
        """The runs to compare with."""
        return tuple(part for part in self.beside.split("~") if part)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else None
