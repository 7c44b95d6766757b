"""ampdoctor: find out why mixed-precision training fails, and what to change.

Every public name is loaded on first use (PEP 562): importing ampdoctor loads neither torch nor pyarrow.

A note to pytest, which loads our plugin and warns of packages that it finds imported: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampdoctor._version import __version__
    from ampdoctor.engine import Diagnosis, diagnose
    from ampdoctor.errors import (
        AmpDoctorError,
        ConfigError,
        OutputExistsError,
        OutputNotWritableError,
        RunNotFoundError,
        SchemaVersionError,
        TraceCorruptError,
        UnknownRuleError,
    )
    from ampdoctor.record.attached.armed import arm
    from ampdoctor.session import watch
    from ampdoctor.trace.run import Run, open_run

__all__ = [
    "AmpDoctorError",
    "ConfigError",
    "Diagnosis",
    "OutputExistsError",
    "OutputNotWritableError",
    "Run",
    "RunNotFoundError",
    "SchemaVersionError",
    "TraceCorruptError",
    "UnknownRuleError",
    "__version__",
    "arm",
    "diagnose",
    "open_run",
    "watch",
]

_HOMES = {
    "Diagnosis": "ampdoctor.engine",
    "Run": "ampdoctor.trace.run",
    "__version__": "ampdoctor._version",
    "arm": "ampdoctor.record.attached.armed",
    "diagnose": "ampdoctor.engine",
    "open_run": "ampdoctor.trace.run",
    "watch": "ampdoctor.session",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ampdoctor.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _arm_if_asked() -> None:
    if os.environ.get("AMPDOCTOR") != "arm":
        return
    try:
        import_module(_HOMES["arm"]).arm()
    except Exception as error:  # noqa: BLE001 - the program that is starting comes first
        print(f"ampdoctor: not armed: {error}", file=sys.stderr)  # noqa: T201


_arm_if_asked()
