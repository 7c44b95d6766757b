"""Settings of the gate, with where each comes from. What they mean is known to `ampdoctor.gate.settings`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FAIL_ON = ("error", "warning", "note", "never")
"""From which severity on a finding fails the gate."""

MISSING = ("fail", "ok")
"""What a baseline comes to that is not there, or empty."""

COMMAND_LINE = "command line"

DEFAULT = "default"


@dataclass(frozen=True)
class GateSettings:
    """What `ampdoctor check` lets pass, as the user wrote it.

    Attributes:
        fail_on: from which severity on a finding fails the gate, one of FAIL_ON.
        max: limits, by metric or `metric@sites`.
        select: globs over names and codes of the rules whose findings count; all without any.
        ignore: globs over those whose findings do not.
        baseline: file of the baseline, or a run; empty for none.
        baseline_missing: what becomes of a baseline that is not there, one of MISSING.
        origin: where settings come from, by name and, of limits, by `max.` and what they limit; what is not in it is a
            default.
    """

    fail_on: str = "warning"
    max: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: str = ""
    baseline_missing: str = "fail"
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    def where(self, name: str) -> str:
        """Return where the setting `name` comes from."""
        return self.origin.get(name, DEFAULT)

    def over(self, origin: str = COMMAND_LINE, *, limits: Iterable[str] = (), **said: Any) -> GateSettings:
        """Return these settings with others on top.

        Args:
            origin: where the others come from.
            limits: `METRIC=VALUE` or `METRIC@SITES=VALUE`; each replaces one of the same metric and sites, and the
                others stay.
            said: further settings by name; None and empty ones say nothing.
        """
        given = {name: value for name, value in said.items() if value not in (None, (), [], "")}
        for name in ("select", "ignore"):
            if name in given:
                given[name] = tuple(given[name])
        # A text without `=` is kept as it is, so that the error names what was typed.
        own = {key.strip(): value.strip() if sign else "" for key, sign, value in (t.partition("=") for t in limits)}
        told = dict.fromkeys((*given, *(f"max.{key}" for key in own)), origin)
        return replace(self, **given, max={**self.max, **own}, origin={**self.origin, **told})
