"""The rules: one file each, found by themselves; no list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from difflib import get_close_matches
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
        UnknownRuleError: there is none; the hint names the one that was meant, as far as can be told, else all.
    """
    for rule in discover():
        if name.lower() in (rule.name, rule.code.lower()):
            return rule
    known = [rule.name for rule in discover()]
    meant = get_close_matches(name.lower(), known, n=1)
    hint = (
        f"did you mean {meant[0]}? `ampdoctor explain` lists all rules" if meant else "known rules: " + ", ".join(known)
    )
    raise UnknownRuleError(f"no rule {name!r}", hint=hint)
