"""When a step ends: as the calls of optimizers, scalers and backward passes say, or as the user's code does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.boundaries import StepBoundaries

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ampdoctor.record.state import State

MOST_MICRO_BATCHES = 10_000
"""Steps of a compiled optimizer are not seen: without an end, rows would pile up for ever."""


class StepEnds:
    """Ends the step at hand when it is over.

    Args:
        state: the step at hand.
        end: ends it and begins the next one.
    """

    def __init__(self, state: State, end: Callable[[], None]) -> None:
        self._state = state
        self._end_step = end
        self._boundaries = StepBoundaries()
        self._manual = self._awaits_update = self._looked_for_optimizers = False

    def asked(self) -> None:
        """The user's code says that the step ends here."""
        log, first = self._state.log, not self._manual
        self._manual = True
        if first and log.step > 0 and not log.begun:
            return  # the first step was found by itself, and ended just now
        self._end()

    def untold(self) -> None:
        """Cleared gradients show that a step has ended which no optimizer tells of."""
        if not self._manual:
            self._end()

    def optimizer_begins(self, name: str) -> None:
        """The optimizer of this name is about to step."""
        self.may_end()
        if not self._manual and self._boundaries.begins_anew(name):
            self._end()

    def optimizer_ended(self, name: str, *, by_scaler: bool) -> None:
        """It has stepped, or was skipped; a scaler's `update` still belongs to the step that it concludes."""
        alive = {self._state.optimizers.name(o) for o in self._state.optimizers.live()}
        if self._manual or not self._boundaries.ends(name, alive):
            if self._state.opinion is not None:
                self._state.opinion.resume()  # another optimizer's turn
        elif by_scaler:
            self._awaits_update = True
        else:
            self._end()

    def may_end(self) -> None:
        """End a step that was only waiting for `update`, or for what comes after it."""
        if self._awaits_update:
            self._end()

    def backward_ended(self, leaves: list[torch.Tensor]) -> None:
        """Without any optimizer, each backward pass is a step: a loop that updates the weights by hand.

        Args:
            leaves: the leaf tensors that the pass reached, where they are known.
        """
        if not self._looked_for_optimizers:
            # Once: a scan of all objects takes a while, and later ones show themselves by their calls.
            self._looked_for_optimizers = True
            self._state.optimizers.find()
        if self._manual:
            return
        # A scaled loss will be stepped by its scaler, whatever kind of optimizer that knows.
        if not len(self._state.optimizers) and self._state.log.pass_scale is None:
            self._state.weights.gradients_of(leaves, scaled=False)
            self._end()
        elif self._state.log.micro_batch >= MOST_MICRO_BATCHES:
            self._end()

    def _end(self) -> None:
        self._awaits_update = False
        self._end_step()
