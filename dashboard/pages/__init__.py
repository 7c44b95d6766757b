"""The pages, one a file: each has a constant PAGE, and is in the navigation by being there."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor_dashboard.pages.base import Page


def discover() -> list[Page]:
    """Return all pages in the order of the navigation."""
    names = [module.name for module in iter_modules(__path__) if module.name != "base"]
    pages: list[Page] = [import_module(f"{__name__}.{name}").PAGE for name in names]
    return sorted(pages, key=lambda page: page.order)
