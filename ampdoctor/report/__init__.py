"""Diagnosis -> text in some format: one module per format, found by itself.

A module of this package that has a function `render(diagnosis) -> str` is a format of that name. Reports only say what
the diagnosis holds: nothing here reads a trace or judges.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.engine import Diagnosis


@cache
def known_formats() -> dict[str, Callable[[Diagnosis], str]]:
    """Return the render function of every format, by name."""
    modules = {m.name: import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
    return {name: module.render for name, module in modules.items() if hasattr(module, "render")}


def find_format(name: str) -> Callable[[Diagnosis], str]:
    """Return the render function of the format called `name`.

    Raises:
        AmpDoctorError: no such format; the hint lists those there are.
    """
    try:
        return known_formats()[name]
    except KeyError:
        raise AmpDoctorError(f"unknown format {name!r}", hint="known formats: " + ", ".join(known_formats())) from None
