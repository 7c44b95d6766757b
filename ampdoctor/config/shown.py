"""All settings in force as an ampdoctor.toml, each with where it comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ampdoctor.config.gate import DEFAULT
from ampdoctor.rules import discover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ampdoctor.config.gate import GateSettings
    from ampdoctor.config.model import Config


def settings_text(config: Config) -> str:
    """Return the settings as the text of an ampdoctor.toml that says the same."""
    said = "no file" if config.path is None else str(config.path)
    lines = [f"# From: {said}; above it the command line, below it the defaults.", ""]
    lines += ["[gate]", *_aligned(_gate(config.gate))]
    if config.gate.max:
        limits = ((_text(key), _text(value), config.gate.where(f"max.{key}")) for key, value in config.gate.max.items())
        lines += ["", "[gate.max]", *_aligned(limits)]
    for entry in config.ignore:
        lines += ["", f"[[ignore]]  # {said}", f"rule = {_text(entry.rule)}"]
        lines += [f"site = {_text(entry.site)}", f"reason = {_text(entry.reason)}"]
    for rule in discover():
        own = config.thresholds.get(rule.name, {})
        defaults = {name: threshold.value for name, threshold in rule.thresholds.items()}
        pairs = [
            (name, f"{own.get(name, value)!r}", f"{said} (default: {value!r})" if name in own else DEFAULT)
            for name, value in defaults.items()
        ]
        if pairs:
            lines += ["", f"[rules.{rule.name}]", *_aligned(pairs)]
    return "\n".join(lines) + "\n"


def _gate(gate: GateSettings) -> Iterator[tuple[str, str, str]]:
    yield "fail-on", _text(gate.fail_on), gate.where("fail_on")
    yield "select", _list(gate.select), gate.where("select")
    yield "ignore", _list(gate.ignore), gate.where("ignore")
    if gate.baseline:
        yield "baseline", _text(gate.baseline), gate.where("baseline")
    yield "baseline-missing", _text(gate.baseline_missing), gate.where("baseline_missing")


def _aligned(settings: Iterable[tuple[str, str, str]]) -> list[str]:
    told = [(f"{name} = {value}", origin) for name, value, origin in settings]
    width = max(len(setting) for setting, _ in told)
    return [f"{setting:{width}}  # {origin}" for setting, origin in told]


def _text(value: str) -> str:
    # A basic string of TOML is written as one of JSON is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"
