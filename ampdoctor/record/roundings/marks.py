"""What is known of where a tensor's values come from, kept by storage for as long as that lives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ampdoctor.record.twin.kinds import has_memory

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_MARKS = 4096
"""Storages followed at a time; those that have died make room first."""


@dataclass(frozen=True)
class Mark:
    """Where values come from.

    Attributes:
        whole: they are whole numbers.
        rounded: name of the half dtype that they were in before they became wider; None for none.
        uses: sets to add to what the values lead to, one per place where whole numbers were changed.
        turns: the same, one per place where a sine or cosine was taken; these are made of nothing else.
        clamped: what clamping to the largest number of an FP8 format took from them.
    """

    whole: bool = False
    rounded: str | None = None
    uses: tuple[set[str], ...] = ()
    turns: tuple[set[str], ...] = ()
    clamped: Any = None

    def __bool__(self) -> bool:
        return self != _NOTHING

    def onward(self, *, whole: bool = False, rounded: str | None = None) -> Mark:
        """Return the mark of what is made of these values alone."""
        return Mark(whole, rounded, self.uses, self.turns)

    def and_uses(self, uses: set[str] | None) -> Mark:
        """Return the mark with one more set to add to."""
        return self if uses is None else replace(self, uses=(*self.uses, uses))


_NOTHING = Mark()


def together(marks: Iterable[Mark]) -> Mark:
    """Return what values made of several have to add to, each set once."""
    uses: list[set[str]] = []
    turns: list[set[str]] = []
    for mark in marks:
        for known, more in ((uses, mark.uses), (turns, mark.turns)):
            known += [m for m in more if not any(m is k for k in known)]
    return Mark(uses=tuple(uses), turns=tuple(turns))


@dataclass
class Marks:
    """The marks in force."""

    _known: dict[int, tuple[StorageWeakRef, Mark]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, tensor: torch.Tensor) -> Mark:
        """Return what is known of `tensor`; integers are whole numbers."""
        if not _is_marked(tensor):
            return Mark(whole=tensor.dtype is not torch.bool)
        entry = self._known.get(_key(tensor)) if has_memory(tensor) else None
        return entry[1] if entry is not None else _NOTHING

    def put(self, tensor: Any, mark: Mark) -> None:
        """Note where the values of `tensor` come from, in place of what was known."""
        if not isinstance(tensor, torch.Tensor) or not has_memory(tensor):
            return
        if not mark or not _is_marked(tensor):
            self._known.pop(_key(tensor), None)
            return
        if len(self._known) >= MOST_MARKS:
            self._known = {k: e for k, e in self._known.items() if not e[0].expired()}
            if len(self._known) >= MOST_MARKS:
                return
        self._known[_key(tensor)] = StorageWeakRef(tensor.untyped_storage()), mark

    def all_of(self, tensors: Iterable[torch.Tensor]) -> list[Mark]:
        """Return what is known of each."""
        return [self.of(t) for t in tensors]

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


def _is_marked(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _key(tensor: torch.Tensor) -> int:
    # A storage's place is not given to another one while it is watched weakly.
    return int(tensor.untyped_storage()._cdata)
