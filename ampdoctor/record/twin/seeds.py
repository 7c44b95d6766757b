"""Where the backward pass of a twin starts: from the run's own seed, or at another loss scale from a multiple of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.twin.geometry import fill
from ampdoctor.record.twin.kinds import check
from ampdoctor.record.twin.storages import NotTwinnable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    import torch

    from ampdoctor.record.twin.storages import TwinStorages


class Seeds:
    """The seeds of one twin.

    Attributes:
        implicit: how many ones the backward pass that begins will make for itself.
        factor: what they are multiplied by.
    """

    def __init__(self, storages: TwinStorages, dtype: torch.dtype, not_twinned: Counter[str]) -> None:
        self._storages, self._dtype, self._not_twinned = storages, dtype, not_twinned
        self._given: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self.implicit = 0
        self.factor = 1.0

    def plant(self, given: Sequence[torch.Tensor | None], factor: float) -> None:
        """Start the backward pass that is about to begin from `factor` times what the run starts from."""
        self.factor = factor
        self.implicit = sum(g is None for g in given)
        for gradient in {id(g): g for g in given if g is not None}.values():
            try:
                check(gradient)
            except NotTwinnable as reason:
                self._not_twinned[f"gradient given to backward: {reason}"] += 1
                continue
            known = self._storages.of(gradient) is not None
            view = self._storages.writable(gradient, self._dtype)
            self._given.append((gradient, view.clone() if known else None))
            fill(view, view * factor)

    def take_back(self) -> None:
        """The backward pass is over; a gradient of the user's that it started from is itself again."""
        self.implicit = 0
        for gradient, before in self._given:
            if before is None:
                self._storages.forget(gradient)
            else:
                fill(self._storages.writable(gradient, self._dtype), before)
        self._given = []
