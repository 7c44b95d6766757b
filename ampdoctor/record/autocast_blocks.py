"""The `torch.autocast` blocks that the training thread is in."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_MOST_OPEN = 64
"""Blocks whose end was not seen (a generator that was dropped) must not pile up."""


@dataclass
class Block:
    """One block that has been entered and not left.

    Attributes:
        key: id of the autocast object; it may be entered again later, or by a decorated function that calls itself.
        columns: of its rows in `calls`; None where it has none.
        first_node: number of the first node that autograd may make in it.
        calls: calls of each module within it on examined steps, where it is an outermost one.
    """

    key: int
    columns: dict[str, Any] | None = None
    first_node: int = 0
    calls: Counter[str] = field(default_factory=Counter)


class AutocastBlocks:
    """Those that are open, outermost first, as far as they were entered on examined steps."""

    def __init__(self) -> None:
        self._open: list[Block] = []
        self._numbers = itertools.count()

    @property
    def depth(self) -> int:
        """How many are open."""
        return len(self._open)

    def new_name(self) -> str:
        """Return a name for a block that gets rows."""
        return f"autocast{next(self._numbers)}"

    def enter(self, block: Block) -> None:
        """A block was entered."""
        if len(self._open) >= _MOST_OPEN:
            self._open.pop()
        self._open.append(block)

    def leave(self, key: int) -> Block | None:
        """A block was left; None for one that was entered before anybody watched."""
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index].key == key:
                return self._open.pop(index)
        return None

    def called(self, path: str) -> None:
        """A module was called."""
        if self._open and self._open[0].columns is not None:
            self._open[0].calls[path] += 1
