"""`[tool.ampdoctor]` of pyproject.toml as a frozen Config. Order: defaults, then pyproject.toml, then the caller."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import ConfigError, UnknownRuleError
from ampdoctor.rules import discover, find_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ampdoctor.finding import Finding
    from ampdoctor.rules.base import Rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTION = "tool.ampdoctor"


@dataclass(frozen=True)
class Ignore:
    """Findings that the user has looked at and accepts.

    Attributes:
        rule: slug of the rule.
        reason: why; shown wherever the finding would have been.
        site: glob over the finding's sites; the finding is accepted where all of its sites match, and not where only
            some do: what happens at the others has not been accepted.
    """

    rule: str
    reason: str
    site: str = "*"

    def covers(self, finding: Finding) -> bool:
        """Whether `finding` is one of those accepted."""
        sites = finding.location.sites or ("",)
        return finding.name == self.rule and all(fnmatchcase(s, self.site) for s in sites)

    def notice(self, findings: Sequence[Finding]) -> str:
        """Return that this entry covers none of `findings`, in a sentence; empty where it covers one."""
        if any(self.covers(finding) for finding in findings):
            return ""
        where = "" if self.site == "*" else f", site {self.site}"
        found = any(finding.name == self.rule for finding in findings)
        why = ". A finding is accepted only where all of its sites match" if found else ""
        return f"An entry of [{SECTION}] matched nothing: rule {self.rule}{where}{why}."


@dataclass(frozen=True)
class Config:
    """Settings of a diagnosis.

    Attributes:
        thresholds: by rule name, then by threshold name.
        ignore: accepted findings.
    """

    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ignore: tuple[Ignore, ...] = ()

    def reason_to_ignore(self, finding: Finding) -> str | None:
        """Return why the user accepts `finding`; None where they don't."""
        return next((entry.reason for entry in self.ignore if entry.covers(finding)), None)

    def notices(self, findings: Sequence[Finding]) -> tuple[str, ...]:
        """Return which entries cover none of `findings`, one sentence each."""
        return tuple(notice for entry in self.ignore if (notice := entry.notice(findings)))


def load_config(start: Path) -> Config:
    """Return the settings of the nearest pyproject.toml at or above `start`; the defaults where there is none.

    Raises:
        ConfigError: unreadable TOML, an unknown key, rule or threshold, a bad value, or no folder to look in.
    """
    try:
        here = start.resolve()
    except OSError:
        raise ConfigError("the working directory does not exist any more", hint="change to one that does") from None
    path = next((p for f in (here, *here.parents) if _is_file(p := f / "pyproject.toml")), None)
    return Config() if path is None else _Parser(path).config()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # not ours to read
        return False


def rules_in_force(config: Config) -> list[Rule]:
    """Return an instance of every rule with the thresholds of `config`."""
    return [rule(config.thresholds.get(rule.name)) for rule in discover()]


class _Parser:
    """Reads the section of one file; every error names the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self) -> Config:
        """Return what the file says."""
        section = self._section()
        self._only(section, {"rules", "ignore"}, SECTION)
        rules = self._table(section.get("rules", {}), f"{SECTION}.rules")
        entries = section.get("ignore", [])
        if not isinstance(entries, list):
            raise self._error(f"{SECTION}.ignore must be a list of tables", f"use [[{SECTION}.ignore]]")
        thresholds = dict(self._thresholds(name, values) for name, values in rules.items())
        return Config(thresholds, tuple(self._ignore(entry) for entry in entries))

    def _section(self) -> dict[str, Any]:
        try:
            document = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise self._error(f"not readable: {error}") from None
        tool = self._table(document.get("tool", {}), "tool")
        return self._table(tool.get("ampdoctor", {}), SECTION)

    def _thresholds(self, name: str, values: Any) -> tuple[str, dict[str, float]]:
        rule = self._rule(name)
        key = f"{SECTION}.rules.{name}"
        table = self._table(values, key)
        self._only(table, set(rule.thresholds), key)
        for threshold, value in table.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._error(f"{key}.{threshold} must be a number, not {value!r}")
            if not (value >= 0 and math.isfinite(value)):
                raise self._error(f"{key}.{threshold} must be finite and at least 0, not {value!r}")
        return rule.name, {threshold: float(value) for threshold, value in table.items()}

    def _ignore(self, entry: Any) -> Ignore:
        key = f"{SECTION}.ignore"
        table = self._table(entry, key)
        self._only(table, {"rule", "reason", "site"}, key)
        wrong = [k for k in ("rule", "reason") if not str(table.get(k, "")).strip()]
        if wrong:
            raise self._error(f"every {key} needs a {' and a '.join(wrong)}")
        return Ignore(self._rule(str(table["rule"])).name, str(table["reason"]), str(table.get("site", "*")))

    def _rule(self, name: str) -> type[Rule]:
        try:
            return find_rule(name)
        except UnknownRuleError as error:
            raise self._error(error.message, error.hint) from None

    def _table(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(f"{key} must be a table, not {value!r}")
        return value

    def _only(self, table: Mapping[str, Any], known: set[str], key: str) -> None:
        unknown = sorted(set(table) - known)
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            raise self._error(f"unknown key {', '.join(unknown)} in {key}", f"known: {names}")

    def _error(self, message: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self._path}: {message}", hint=hint)
