"""Hugging Face's Accelerate: `with watch(accelerator):` around the training, once everything is prepared."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ampdoctor
from ampdoctor.integrations.base import WHOLE_STEP, is_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accelerate import Accelerator

    from ampdoctor.record.recorder import Recorder

PROVIDES = WHOLE_STEP
"""Everything that a plain loop with GradScaler has; clipping and schedulers are the user's own to call."""


@contextmanager
def watch(accelerator: Accelerator, **settings: Any) -> Iterator[Recorder | None]:
    """Record the training in this block: the models, the optimizer and the scaler that `accelerator` has prepared.

    Accelerate leaves the loop to its user, and so does this: a block ends where the training does, also where an
    exception ends it. A tracker (`Accelerator(log_with=...)`), which is what Accelerate has callers add, would take
    more lines (`init_trackers`, `end_training`), not hear of exceptions, and never meet the accelerator.

    Args:
        accelerator: the Accelerator; whatever is not prepared yet is found by itself.
        settings: as for `ampdoctor.watch`: `out`, `every`, `budget`, `sample_above`, `prove`, `force`, `report`.

    Yields:
        The recorder; None in a process that is not recorded (see `is_recorded`).
    """
    if not is_recorded(main=accelerator.is_main_process):
        yield None
        return
    models = [accelerator.unwrap_model(model, keep_fp32_wrapper=True) for model in accelerator._models]
    optimizers = accelerator._optimizers
    with ampdoctor.watch(
        models[0] if len(models) == 1 else None,  # several go by the names of their variables
        optimizer=optimizers[0] if optimizers else None,
        scaler=accelerator.scaler,
        **settings,
    ) as recorder:
        yield recorder
