"""Hugging Face's Trainer: `Trainer(..., callbacks=[AmpDoctorCallback()])`."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback

from ampdoctor.integrations.base import WHOLE_STEP, Provides, Recordings, is_recorded
from ampdoctor.record.frames import variables_of

if TYPE_CHECKING:
    from types import FrameType

PROVIDES = Provides(
    columns=WHOLE_STEP.columns | {"steps.grad_norm"},
    calls=WHOLE_STEP.calls | {"unscale", "clip_norm", "scheduler_step"},
    events=WHOLE_STEP.events | {"unscale"},
)
"""Trainer clips gradients and has a learning rate scheduler, unless it is told otherwise."""

_BATCHES = "_run_epoch"
"""What goes through the batches of an epoch; in earlier versions it is a part of the whole loop."""

_RECORDINGS = "_ampdoctor_recordings"
"""Attribute of a wrapper of ours: whose it is."""


class AmpDoctorCallback(TrainerCallback):  # type: ignore[misc] # untyped where transformers is not installed
    """Records each `trainer.train()`, from `on_train_begin` to its end, also where that is an exception.

    Trainer tells callbacks nothing of an exception, and does not introduce itself to them. It is found among the
    callers of `on_init_end`, and its `train` is wrapped: this one trainer's, not the class's. With `add_callback`
    there is no `on_init_end`; in a `train` that is running already, what goes through the batches is wrapped instead.

    Args:
        settings: as for `ampdoctor.watch`: `out`, `every`, `budget`, `sample_above`, `prove`, `force`, `report`.
    """

    def __init__(self, **settings: Any) -> None:
        self._recordings = Recordings(settings)

    def on_init_end(self, *_: Any, **__: Any) -> None:
        """Make sure that an exception which leaves `train` is heard of."""
        self._listen("__init__", ("train",))

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """Begin to record; Accelerate's wrapper of the optimizer knows the scaler."""
        self._listen("_inner_training_loop", ("train", _BATCHES if hasattr(Trainer, _BATCHES) else "training_step"))
        if is_recorded(main=state.is_world_process_zero):
            self._recordings.begin(model, optimizer, getattr(optimizer, "scaler", None))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the recording."""
        self._recordings.end()

    def _listen(self, function: str, methods: tuple[str, ...]) -> None:
        """Wrap `methods` of the trainer that calls us from a function of this name, unless it is wrapped already."""
        trainer = self._caller(function)
        wrapped = getattr(vars(trainer).get("train"), _RECORDINGS, None) if trainer is not None else self._recordings
        if wrapped is not self._recordings:
            for name in methods:
                setattr(trainer, name, _ending(getattr(trainer, name), self._recordings))

    def _caller(self, function: str) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            # Of no other frame, lest a function of the user's be asked for its variables.
            caller = variables_of(frame).get("self") if frame.f_code.co_name == function else None
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

    setattr(wrapper, _RECORDINGS, recordings)
    return wrapper
