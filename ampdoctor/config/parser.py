"""From TOML to settings; every error names the file and the key, and lists what is allowed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.config.gate import FAIL_ON, MISSING, GateSettings
from ampdoctor.config.model import Config, Ignore
from ampdoctor.errors import ConfigError, UnknownRuleError
from ampdoctor.rules import find_rule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ampdoctor.rules.base import Rule


class Parser:
    """Reads the settings of one file.

    Args:
        path: the file.
        section: the table that holds them; empty for the file's top level.
    """

    def __init__(self, path: Path, section: str) -> None:
        self._path = path
        self._section = section

    def config(self, section: dict[str, Any]) -> Config:
        """Return what the section says."""
        self._only(section, {"rules", "ignore", "gate"}, self._section)
        key = self._key("rules")
        rules = self.table(section.get("rules", {}), key)
        thresholds = dict(self._thresholds(f"{key}.{name}", name, values) for name, values in rules.items())
        entries, key = section.get("ignore", []), self._key("ignore")
        if not isinstance(entries, list):
            raise self.error(f"{key} must be a list of tables", f"use [[{key}]]")
        accepted = tuple(self._ignore(entry, key) for entry in entries)
        return Config(thresholds, accepted, self._gate(section.get("gate", {}), self._key("gate")), self._path)

    def _key(self, name: str) -> str:
        return f"{self._section}.{name}" if self._section else name

    def _gate(self, value: Any, key: str) -> GateSettings:
        table = self.table(value, key)
        self._only(table, {"fail-on", "max", "select", "ignore", "baseline", "baseline-missing"}, key)
        said: dict[str, Any] = {
            "fail_on": self._choice(table, "fail-on", key, FAIL_ON),
            "baseline_missing": self._choice(table, "baseline-missing", key, MISSING),
            "select": self._names(table, "select", key),
            "ignore": self._names(table, "ignore", key),
        }
        if "baseline" in table:
            # Meant from where it is written, not from where somebody stands.
            said["baseline"] = str(self._path.parent / self._text(table["baseline"], f"{key}.baseline"))
        limits = self.table(table.get("max", {}), f"{key}.max")
        texts = [f"{name}={self._limit(limit, f'{key}.max.{name}')}" for name, limit in limits.items()]
        return GateSettings().over(str(self._path), limits=texts, **said)

    def _choice(self, table: Mapping[str, Any], name: str, key: str, known: tuple[str, ...]) -> str | None:
        value = table.get(name)
        if value is not None and value not in known:
            raise self.error(f"{key}.{name} can't be {value!r}", f"known: {', '.join(known)}")
        return value

    def _names(self, table: Mapping[str, Any], name: str, key: str) -> tuple[str, ...]:
        value = table.get(name, [])
        if not isinstance(value, list):
            raise self.error(f"{key}.{name} must be a list of rules, not {value!r}", f'write {name} = ["AMP3*"]')
        return tuple(self._text(entry, f"{key}.{name}") for entry in value)

    def _text(self, value: Any, key: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{key} must be a text, not {value!r}")
        return value

    def _limit(self, value: Any, key: str) -> str:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = "as in flushed = 0.01, or flushed = '1%'; names with a site or a dot need quotes"
            raise self.error(f"{key} must be a number or a text, not {value!r}", hint)
        return repr(value)

    def _thresholds(self, key: str, name: str, values: Any) -> tuple[str, dict[str, float]]:
        rule = self._rule(name)
        table = self.table(values, key)
        self._only(table, set(rule.thresholds), key)
        for threshold, value in table.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(f"{key}.{threshold} must be a number, not {value!r}")
            if not (value >= 0 and math.isfinite(value)):
                raise self.error(f"{key}.{threshold} must be finite and at least 0, not {value!r}")
        return rule.name, {threshold: float(value) for threshold, value in table.items()}

    def _ignore(self, entry: Any, key: str) -> Ignore:
        table = self.table(entry, key)
        self._only(table, {"rule", "reason", "site"}, key)
        wrong = [k for k in ("rule", "reason") if not str(table.get(k, "")).strip()]
        if wrong:
            raise self.error(f"every {key} needs a {' and a '.join(wrong)}")
        return Ignore(self._rule(str(table["rule"])).name, str(table["reason"]), str(table.get("site", "*")))

    def _rule(self, name: str) -> type[Rule]:
        try:
            return find_rule(name)
        except UnknownRuleError as error:
            raise self.error(error.message, error.hint) from None

    def table(self, value: Any, key: str) -> dict[str, Any]:
        """Return `value`, which must be a table."""
        if not isinstance(value, dict):
            raise self.error(f"{key} must be a table, not {value!r}")
        return value

    def _only(self, table: Mapping[str, Any], known: set[str], key: str) -> None:
        unknown = sorted(set(table) - known)
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            raise self.error(f"unknown key {', '.join(unknown)} in {key or 'the file'}", f"known: {names}")

    def error(self, message: str, hint: str = "") -> ConfigError:
        """Return an error about the file."""
        return ConfigError(f"{self._path}: {message}", hint=hint)
