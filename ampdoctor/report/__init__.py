"""Diagnosis, or result of a gate -> text in some format: one module per format, found by itself.

A module of this package that has a function `render(diagnosis) -> str` is a format of that name, and of gates too where
it has `render_gate(result) -> str`. Reports only say what they are given: nothing here reads a trace or judges.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampdoctor.engine import Diagnosis
    from ampdoctor.gate.result import GateResult


@cache
def known_formats() -> dict[str, Callable[[Diagnosis], str]]:
    """Return the function that renders a diagnosis, of every format, by name."""
    return _functions("render")


@cache
def known_gate_formats() -> dict[str, Callable[[GateResult], str]]:
    """Return the function that renders the result of a gate, of every format, by name."""
    return _functions("render_gate")


def _functions(function: str) -> dict[str, Any]:
    modules = {m.name: import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
    return {name: getattr(module, function) for name, module in modules.items() if hasattr(module, function)}


def find_format(name: str) -> Callable[[Diagnosis], str]:
    """Return the function that renders a diagnosis in the format called `name`.

    Raises:
        AmpDoctorError: no such format; the hint lists those there are.
    """
    _must_be_known(name, known_formats())
    return known_formats()[name]


def find_gate_format(name: str) -> Callable[[GateResult], str]:
    """Return the function that renders the result of a gate in the format called `name`.

    Raises:
        AmpDoctorError: no such format; the hint lists those there are.
    """
    _must_be_known(name, known_gate_formats())
    return known_gate_formats()[name]


def _must_be_known(name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise AmpDoctorError(f"unknown format {name!r}", hint="known formats: " + ", ".join(known))
