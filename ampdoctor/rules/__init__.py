"""The rules: one file each, found by themselves; no list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

from ampdoctor.errors import UnknownRuleError
from ampdoctor.rules.base import Rule


@cache
def discover() -> tuple[type[Rule], ...]:
    """Return every rule of this package, ordered by code.

    Raises:
        TypeError: two rules share a code or a name.
    """
    found: dict[str, type[Rule]] = {}
    for module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
        for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(member, Rule) and member.__module__ == module.name and not inspect.isabstract(member):
                for key in (member.code, member.name):
                    if key in found:
                        raise TypeError(f"{member.__name__} and {found[key].__name__} share {key}")
                    found[key] = member
    return tuple(sorted(set(found.values()), key=lambda rule: rule.code))


def find_rule(name: str) -> type[Rule]:
    """Return the rule with the slug or code `name`.

    Raises:
        UnknownRuleError: there is none; the hint lists those there are.
    """
    for rule in discover():
        if name.lower() in (rule.name, rule.code.lower()):
            return rule
    raise UnknownRuleError(f"no rule {name!r}", hint="known rules: " + ", ".join(r.name for r in discover()))
