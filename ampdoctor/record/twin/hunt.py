"""A loss that is NaN now and then, for no reason seen so far: second opinions until the next time it happens.

A replay executes the model again and not what makes the loss, and the steps around a bad batch are well. So the steps
after one are looked at as they run, until one of them fails too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.trace.schema import OpRow, TwinRow

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

STEPS = 40
"""Steps that are looked at in this way in a whole run: a batch in twenty that fails will be among them."""

SECONDS = 5.0
"""Time that nobody minds in a whole run."""


class Hunt:
    """Decides which steps are looked at for that reason."""

    def __init__(self) -> None:
        self._left = STEPS
        self._on = self._born = False
        self._spent = 0.0

    def learn(self, rows: Iterable[tuple[str, Any]]) -> None:
        """Take note of the rows of a step: what makes the NaN may be among them."""
        seen = [row for _, row in rows]
        self._born = any(isinstance(row, OpRow) and row.born > 0 for row in seen)
        losses = (row for row in seen if isinstance(row, TwinRow) and row.role == "loss")
        if any(row.value is not None and not math.isfinite(row.value) for row in losses):
            self._on, self._left = False, 0

    def alarm(self, kind: str) -> None:
        """The vital `kind` has turned on the step that was learned last."""
        if kind == "nonfinite-loss" and not self._born:
            self._on = True

    def took(self, seconds: float) -> None:
        """A second opinion has taken so long, on the host."""
        if self._on:
            self._spent += seconds

    def wanted(self) -> bool:
        """Whether to look at the next step."""
        if not self._on or self._left <= 0 or self._spent > SECONDS:
            return False
        self._left -= 1
        return True
