"""`[tool.ampdoctor]` of pyproject.toml as a frozen Config. Order: defaults, then pyproject.toml, then the caller."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import ConfigError
from ampdoctor.rules import discover, find_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampdoctor.finding import Finding

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib


@dataclass(frozen=True)
class Ignore:
    """Findings that the user has looked at and accepts.

    Attributes:
        rule: slug of the rule.
        reason: why; shown wherever the finding would have been.
        site: glob over the finding's sites; the finding is ignored where all of its sites match.
    """

    rule: str
    reason: str
    site: str = "*"

    def covers(self, finding: Finding) -> bool:
        """Whether `finding` is one of those accepted."""
        sites = finding.location.sites or ("",)
        return finding.name == self.rule and all(fnmatchcase(s, self.site) for s in sites)


@dataclass(frozen=True)
class Config:
    """Settings of a diagnosis.

    Attributes:
        thresholds: by rule name, then by threshold name.
        ignore: accepted findings.
    """

    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ignore: tuple[Ignore, ...] = ()


def load_config(start: Path) -> Config:
    """Return the settings of the nearest pyproject.toml at or above `start`; the defaults where there is none.

    Raises:
        ConfigError: unreadable TOML, an unknown key, rule or threshold, or a value of the wrong type.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                document = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} is not readable: {error}") from None
            return _parse(document.get("tool", {}).get("ampdoctor", {}), path)
    return Config()


def _parse(section: Mapping[str, Any], path: Path) -> Config:
    _only(section, {"rules", "ignore"}, path)
    thresholds = {name: _thresholds(name, values, path) for name, values in section.get("rules", {}).items()}
    return Config(thresholds, tuple(_ignore(entry, path) for entry in section.get("ignore", [])))


def _thresholds(name: str, values: Any, path: Path) -> Mapping[str, float]:
    rule = find_rule(name)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: tool.ampdoctor.rules.{name} must be a table of thresholds")
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{path}: {name}.{key} must be a number, not {value!r}")
    rule(values)
    return {key: float(value) for key, value in values.items()}


def _ignore(entry: Any, path: Path) -> Ignore:
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: tool.ampdoctor.ignore must hold tables", hint="use [[tool.ampdoctor.ignore]]")
    _only(entry, {"rule", "reason", "site"}, path)
    if not str(entry.get("reason", "")).strip() or "rule" not in entry:
        raise ConfigError(f"{path}: every tool.ampdoctor.ignore needs a rule and a reason")
    return Ignore(find_rule(entry["rule"]).name, str(entry["reason"]), str(entry.get("site", "*")))


def _only(section: Mapping[str, Any], known: set[str], path: Path) -> None:
    unknown = sorted(set(section) - known)
    if unknown:
        raise ConfigError(
            f"{path}: unknown key {', '.join(unknown)} in tool.ampdoctor",
            hint="known: " + ", ".join(sorted(known)),
        )


def rules_in_force(config: Config) -> list[Any]:
    """Return an instance of every rule with the thresholds of `config`."""
    return [rule(config.thresholds.get(rule.name)) for rule in discover()]
