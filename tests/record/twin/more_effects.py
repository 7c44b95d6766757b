"""More forwards that do more than to calculate."""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from tests.record.twin.effects import SEEN


def stored_before(self, x, cache):
    if self.act is not None:
        self.act.append(x)
    self.act = cache
    return x


def mapped(self, x):
    return list(map(print, [x]))


def other_attribute(self, x):
    SEEN.extended = 1  # type: ignore[attr-defined]
    return x


def broken_out(self, x, cache):
    y: Any = []
    for layer in self.layers:
        y = cache
        if layer is None:
            break
        y = []
    y.append(x)
    return y
