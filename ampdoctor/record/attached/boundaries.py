"""Where a training that nobody has recorded so far is between two steps, told on its own thread."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.compiled_steps import CompiledSteps
from ampdoctor.record.frames import variables_of
from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.patching import Patches

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_STEP = "Optimizer.step#"
"""How torch calls the region of a profile that an optimizer's step is."""

_MOST_FRAMES = 64
"""Between an optimizer's step and the scaler that makes it."""


class Boundaries:
    """Calls `reached` at each boundary.

    A step ends when its optimizer has stepped, or, where a scaler makes it, with the scaler's `update`, which comes on
    skipped steps too. Where the same optimizer steps again and no `update` was seen, none will be: the user's scaler
    has one of its own, or none. Without any optimizer each backward pass ends one, and where an optimizer's step is
    compiled, whoever clears gradients after it. Nothing is called from inside a hook: what is registered there would
    change the hooks that torch is about to go through.

    Args:
        reached: must not raise. Of a step whose end nobody else sees, it is given the parameters, with their gradients.
    """

    def __init__(self, reached: Callable[[list[torch.Tensor] | None], None]) -> None:
        self._reached = reached
        self._patches = Patches()
        self._process = os.getpid()
        self._by_hand = False
        self._awaiting_update: set[int] = set()
        self._compiled = CompiledSteps(self._untold)
        scaler = torch.amp.GradScaler
        self._steps_of_scalers = {inspect.unwrap(f).__code__ for f in (scaler.step, scaler._maybe_opt_step)}

    def watch(self) -> None:
        """Begin to look; from any thread."""
        self._by_hand = not live_instances(torch.optim.Optimizer)
        around = self._patches.around
        around(torch.autograd.profiler.record_function, "__exit__", self._ends_step, self._left)
        around(torch.amp.GradScaler, "update", self._updates, self._left)
        around(torch.autograd, "backward", self._ends_step_by_hand, self._left)
        self._compiled.watch(self._patches)

    def leave(self) -> None:
        """Look no further."""
        self._patches.undo()

    def _left(self, ends: bool, _: Any, error: BaseException | None) -> None:
        if ends and error is None and not torch.compiler.is_compiling() and os.getpid() == self._process:
            self._reached(None)

    def _untold(self, parameters: list[torch.Tensor]) -> None:
        if os.getpid() == self._process:
            self._reached(parameters)

    def _ends_step(self, region: Any, *_: Any) -> bool:
        try:
            if not str(getattr(region, "name", "")).startswith(_STEP):
                return False
            self._compiled.others_tell()
            return not self._update_will_end_it()
        except Exception:  # noqa: BLE001 - the scaler is the user's, and so is what is wrapped around it
            return False

    def _updates(self, scaler: Any, *_: Any, **__: Any) -> bool:
        self._awaiting_update.clear()
        if not _enabled(scaler):
            return False
        self._compiled.others_tell()
        return True

    def _ends_step_by_hand(self, *_: Any, **__: Any) -> bool:
        return self._by_hand

    def _update_will_end_it(self) -> bool:
        variables = self._variables_of_scaler_step()
        if not _enabled(variables.get("self")):
            return False
        optimizer = id(variables.get("optimizer"))
        again = optimizer in self._awaiting_update
        self._awaiting_update.add(optimizer)
        return not again

    def _variables_of_scaler_step(self) -> dict[str, Any]:
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            # A function that the user has put in its place may have no such variable.
            if frame.f_code in self._steps_of_scalers and "self" in (variables := variables_of(frame)):
                return variables
            frame = frame.f_back
        return {}


def _enabled(scaler: Any) -> bool:
    try:
        return scaler is not None and bool(scaler.is_enabled())
    except Exception:  # noqa: BLE001 - a class of the user's
        return False
