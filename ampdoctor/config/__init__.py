"""Settings: `[tool.ampdoctor]` of pyproject.toml, or ampdoctor.toml, as a frozen Config.

The command line goes before the file, and the file before the defaults.
"""

from __future__ import annotations

from ampdoctor.config.files import load_config
from ampdoctor.config.gate import GateSettings
from ampdoctor.config.model import Config, Ignore, rules_in_force
from ampdoctor.config.shown import settings_text

__all__ = ["Config", "GateSettings", "Ignore", "load_config", "rules_in_force", "settings_text"]
