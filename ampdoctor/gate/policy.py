"""What a gate lets pass: severities, limits of the user's own, and what to do where there is no baseline."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Severity
from ampdoctor.gate.metrics import METRICS, Metric, Unit, Worse, find_metric
from ampdoctor.gate.readings import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = re.compile(r"(?P<metric>[a-z_]+)(?:@(?P<site>[^=]+))?=(?P<value>.+)")

_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

_HOW = "as in flushed=1%, flushed@encoder.*=0.5%, memory=4GiB, min_scale=2^8"


@dataclass(frozen=True)
class Limit:
    """A limit of the user's own.

    Attributes:
        metric: what may not go beyond it; where less is worse, it is the least allowed.
        value: the limit.
        site: glob over the sites that it holds for; empty for the run as a whole.
        text: how the user wrote it.
    """

    metric: Metric
    value: float
    site: str = WHOLE
    text: str = ""

    def covers(self, site: str) -> bool:
        """Whether the limit holds for `site`."""
        return site == self.site if self.site == WHOLE else site != WHOLE and fnmatchcase(site, self.site)


@dataclass(frozen=True)
class Policy:
    """What a gate lets pass.

    Attributes:
        fail_on: from which severity on a finding fails it; None where none does.
        limits: of the user's own.
        select: globs over names and codes of rules whose findings count; all without any.
        ignore: globs over those whose findings do not.
    """

    fail_on: Severity | None = Severity.WARNING
    limits: tuple[Limit, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def counts(self, code: str, name: str) -> bool:
        """Whether findings of the rule with this code and name count."""
        return (not self.select or _matches(code, name, self.select)) and not _matches(code, name, self.ignore)

    def fails(self, severity: Severity) -> bool:
        """Whether a finding of this severity fails the gate."""
        return self.fail_on is not None and severity.rank <= self.fail_on.rank


def _matches(code: str, name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) or fnmatchcase(code.lower(), glob.lower()) for glob in globs)


def parse_limit(text: str) -> Limit:
    """Return the limit that `METRIC[@SITES]=VALUE` says.

    Raises:
        AmpDoctorError: it is not of that form, or there is no such metric.
    """
    found = _LIMIT.fullmatch(text.strip())
    if not found:
        raise AmpDoctorError(f"{text!r} is no limit", hint=f"METRIC=VALUE or METRIC@SITES=VALUE, {_HOW}")
    metric = find_metric(found["metric"])
    if found["site"] and not metric.by_site:
        told = ", ".join(m.name for m in METRICS.values() if m.by_site)
        raise AmpDoctorError(f"{metric.name} is not told by site", hint=f"by site there are: {told}")
    return Limit(metric, _value(metric, found["value"].strip(), text), found["site"] or WHOLE, text.strip())


def _value(metric: Metric, value: str, text: str) -> float:
    try:
        number = _number(metric, value)
    except (ValueError, OverflowError):
        raise AmpDoctorError(f"{text!r}: {value!r} is no number", hint=f"give one, {_HOW}") from None
    if not math.isfinite(number) or (number < 0 and metric.worse is Worse.MORE):
        raise AmpDoctorError(f"{text!r}: {value!r} can't be a limit", hint="give a finite number, at least 0")
    if metric.unit is Unit.SHARE and number > 1:
        raise AmpDoctorError(f"{text!r}: a share is at most 1", hint=f"for percent write {value}%")
    return number


def _number(metric: Metric, value: str) -> float:
    if metric.unit is Unit.SHARE and value.endswith("%"):
        return float(value[:-1]) / 100.0
    if metric.unit is Unit.LOG2:
        power = re.fullmatch(r"2(?:\^|\*\*)(-?\d{1,3})", value)
        return float(power[1]) if power else math.log2(float(value))
    if metric.unit is Unit.BYTES:
        size = re.fullmatch(r"([\d.eE+]+)\s*([KMG]?i?B)", value, re.IGNORECASE)
        return float(size[1]) * _SIZES[size[2].upper()] if size else float(value)
    return float(value.removesuffix(metric.unit.value) if metric.unit is Unit.MS else value)
