"""Has the step at hand just failed? Asked before an optimizer steps without a scaler, which would have asked itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.shards import local_part
from ampdoctor.record.stats import all_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.record.log import Scalar


def broken(losses: Sequence[tuple[Scalar, Scalar]], parameters: Iterable[torch.Tensor]) -> bool:
    """Whether a loss or a gradient is known to be NaN or infinite.

    Known without waiting, that is: of what lies on an accelerator nothing is.

    Args:
        losses: what backward started from, with the loss scale in it.
        parameters: those that the optimizer is about to change.
    """
    if any(isinstance(loss, float) and not math.isfinite(loss) for loss, _ in losses):
        return True
    # Asked of hundreds on each step, nearly all of which are plain ones.
    gradients = [p.grad for p in parameters]
    return not all_finite([g if g is None or type(g) is torch.Tensor else local_part(g) for g in gradients])
