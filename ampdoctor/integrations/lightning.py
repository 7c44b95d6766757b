"""Lightning: `Trainer(callbacks=[AmpDoctorCallback()])` and `Fabric(callbacks=[AmpDoctorCallback()])`.

For `lightning` and for `pytorch_lightning`: what counts is which of them is loaded when the callback is made.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from ampdoctor.integrations.base import WHOLE_STEP, Provides, Recordings, is_recorded

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

PROVIDES = Provides(
    columns=WHOLE_STEP.columns, calls=WHOLE_STEP.calls | {"unscale"}, events=WHOLE_STEP.events | {"unscale"}
)
"""Trainer calls `unscale_` before each step, whether there is clipping or not."""

FABRIC_PROVIDES = WHOLE_STEP
"""With Fabric clipping is the user's own to call."""

_CALLBACKS = ("lightning.pytorch", "pytorch_lightning")
"""Modules whose Trainer takes callbacks of the class `Callback` in them, and no others."""


class AmpDoctorCallback:
    """Records each training: with Trainer each `fit`, from `on_train_start` to its end or an exception.

    With Fabric it begins with `fabric.setup`, and the user's own loop says where it ends: by
    `fabric.call("on_train_end")`, as Fabric's users do it, by `with callback:` around it, or with the process.

    Args:
        settings: as for `ampdoctor.watch`: `out`, `every`, `budget`, `sample_above`, `prove`, `force`, `report`.
    """

    def __new__(cls, **_: Any) -> Self:
        """Make one that is also of the class which the loaded Trainer asks for."""
        loaded = [sys.modules[name].Callback for name in _CALLBACKS if name in sys.modules]
        made: Self = object.__new__(_joined((cls, *loaded)))
        return made

    def __init__(self, **settings: Any) -> None:
        self._recordings = Recordings(settings)

    def __reduce__(self) -> Any:
        return functools.partial(AmpDoctorCallback, **self._recordings.settings), ()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to record: what comes before it is a sanity check, not the training."""
        if is_recorded(main=trainer.is_global_zero):
            optimizers = trainer.optimizers
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            self._recordings.begin(pl_module, optimizers[0] if optimizers else None, scaler)

    def on_after_setup(self, fabric: Any, module: Any) -> None:
        """Begin to record what Fabric has set up; a second model belongs to the same training, and is found."""
        if is_recorded(main=fabric.is_global_zero) and self._recordings.recorder is None:
            scaler = getattr(fabric.strategy.precision, "scaler", None)
            self._recordings.begin(module.module, scaler=scaler)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the recording."""
        self._recordings.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End it as crashed."""
        self._recordings.end(exception)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recordings.end(error)


@functools.cache
def _joined(parents: tuple[Any, ...]) -> Any:
    """Return the first of `parents` as a class that is a child of the others too."""
    kind = parents[0]
    return type(kind.__name__, parents, {"__module__": kind.__module__, "__doc__": kind.__doc__})
