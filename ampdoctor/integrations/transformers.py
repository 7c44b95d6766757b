"""Hugging Face's Trainer: `Trainer(..., callbacks=[AmpDoctorCallback()])`."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback

from ampdoctor.integrations.base import WHOLE_STEP, Provides, Recordings

if TYPE_CHECKING:
    from types import FrameType

PROVIDES = Provides(
    columns=WHOLE_STEP.columns | {"steps.grad_norm"},
    calls=WHOLE_STEP.calls | {"unscale", "clip_norm", "scheduler_step"},
    events=WHOLE_STEP.events | {"unscale"},
)
"""Trainer clips gradients and has a learning rate scheduler, unless it is told otherwise."""


class AmpDoctorCallback(TrainerCallback):  # type: ignore[misc] # untyped where transformers is not installed
    """Records each `trainer.train()`, from `on_train_begin` to its end, also where that is an exception.

    Trainer tells callbacks nothing of an exception, and does not introduce itself to them. It is found among the
    callers of `on_init_end`, and its `train` is wrapped: this one trainer's, not the class's. With `add_callback`
    there is no `on_init_end`; an exception then ends the recording where it ends the process.

    Args:
        settings: as for `ampdoctor.watch`: `out`, `every`, `budget`, `sample_above`, `prove`, `force`, `report`.
    """

    def __init__(self, **settings: Any) -> None:
        self._recordings = Recordings(settings)

    def on_init_end(self, *_: Any, **__: Any) -> None:
        """Make sure that an exception which leaves `train` is heard of."""
        trainer = self._trainer()
        if trainer is not None:
            trainer.train = _ending(trainer.train, self._recordings)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """Begin to record; Accelerate's wrapper of the optimizer knows the scaler."""
        if state.is_world_process_zero:
            self._recordings.begin(model, optimizer, getattr(optimizer, "scaler", None))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the recording."""
        self._recordings.end()

    def _trainer(self) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            # Of no other frame: one that runs for long would keep all its variables alive for having been asked.
            caller = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
            if isinstance(caller, Trainer) and self in caller.callback_handler.callbacks:
                return caller
            frame = frame.f_back
        return None


def _ending(train: Any, recordings: Recordings) -> Any:
    """Return `train` with the recording ended as crashed where it raises."""

    @functools.wraps(train)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        except BaseException as error:
            recordings.end(error)
            raise

    return wrapper
