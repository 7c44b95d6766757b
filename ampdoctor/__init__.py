"""ampdoctor: find out why mixed-precision training fails, and what to change.

Every public name is loaded on first use (PEP 562): importing ampdoctor loads neither torch nor pyarrow.
"""

from __future__ import annotations

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
    "diagnose",
    "open_run",
    "watch",
]

_HOMES = {
    "Diagnosis": "ampdoctor.engine",
    "Run": "ampdoctor.trace.run",
    "__version__": "ampdoctor._version",
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
