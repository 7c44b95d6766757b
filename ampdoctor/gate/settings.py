"""From the gate's settings, as they were written, to a policy."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ampdoctor.config.gate import COMMAND_LINE, DEFAULT, FAIL_ON, MISSING
from ampdoctor.errors import AmpDoctorError, ConfigError
from ampdoctor.finding import Severity
from ampdoctor.gate.policy import Limit, Policy, parse_limit
from ampdoctor.rules import discover

if TYPE_CHECKING:
    from ampdoctor.config.gate import GateSettings


def policy_of(settings: GateSettings) -> Policy:
    """Return the policy that `settings` ask for.

    Raises:
        ConfigError: an impossible value, or a rule or metric that there is none of; it says where it was written.
    """
    for name, known in (("fail_on", FAIL_ON), ("baseline_missing", MISSING)):
        value = getattr(settings, name)
        if value not in known:
            raise _error(settings, name, f"{name.replace('_', '-')} can't be {value!r}", f"known: {', '.join(known)}")
    for name in ("select", "ignore"):
        for glob in getattr(settings, name):
            _check_glob(settings, name, glob)
    fail_on = None if settings.fail_on == "never" else Severity(settings.fail_on)
    limits = tuple(_limit(settings, key, value) for key, value in settings.max.items())
    return Policy(fail_on, limits, settings.select, settings.ignore)


def _limit(settings: GateSettings, key: str, value: str) -> Limit:
    try:
        return parse_limit(f"{key}={value}" if value else key)
    except AmpDoctorError as error:
        raise _error(settings, f"max.{key}", error.message, error.hint) from None


def _check_glob(settings: GateSettings, name: str, glob: str) -> None:
    for rule in discover():
        if fnmatchcase(rule.name, glob) or fnmatchcase(rule.code.lower(), glob.lower()):
            return
    families = ", ".join(sorted({f"{rule.code[:4]}*" for rule in discover()}))
    raise _error(settings, name, f"no rule matches {glob!r}", f"see `ampdoctor explain`; by code there are: {families}")


def _error(settings: GateSettings, name: str, message: str, hint: str) -> ConfigError:
    origin = settings.where(name)
    return ConfigError(message if origin in (COMMAND_LINE, DEFAULT) else f"{origin}: {message}", hint=hint)
