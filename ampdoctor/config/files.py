"""Which file holds the settings: the nearest pyproject.toml or ampdoctor.toml at or above a folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ampdoctor.config.model import SECTION, Config
from ampdoctor.config.parser import Parser
from ampdoctor.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN = "ampdoctor.toml"
"""A file that holds nothing but our settings, at its top level."""

SHARED = "pyproject.toml"


def load_config(start: Path) -> Config:
    """Return the settings of the nearest file at or above `start`; the defaults where there is none.

    Raises:
        ConfigError: unreadable TOML, an unknown key, rule or threshold, a bad value, two files of one folder that both
            hold settings, or no folder to look in.
    """
    try:
        here = start.resolve()
    except OSError:
        raise ConfigError("the working directory does not exist any more", hint="change to one that does") from None
    for folder in (here, *here.parents):
        own, shared = (_section(folder / name) for name in (OWN, SHARED))
        if own is not None and shared:
            hint = f"move [{SECTION}] into {OWN}, or the other way round"
            raise ConfigError(f"{folder}: settings are in both {OWN} and {SHARED}", hint=hint)
        if own is not None:
            return Parser(folder / OWN, "").config(own)
        if shared is not None:
            return Parser(folder / SHARED, SECTION).config(shared)
    return Config()


def _section(path: Path) -> dict[str, Any] | None:
    """Return our settings in a file; None where there is no file."""
    if not _is_file(path):
        return None
    parser = Parser(path, SECTION)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise parser.error(f"not readable: {error}") from None
    if path.name == OWN:
        return document
    return parser.table(parser.table(document.get("tool", {}), "tool").get("ampdoctor", {}), SECTION)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # not ours to read
        return False
