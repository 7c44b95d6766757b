"""Has the step at hand just failed? Asked before an optimizer steps without a scaler, which would have asked itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

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
    gradients = [p.grad for p in parameters if p.grad is not None and _is_plain(p.grad)]
    if not gradients:
        return False
    with torch.no_grad():
        sizes = torch._foreach_norm(gradients, float("inf"))
        return not bool(torch.isfinite(torch.stack([s.float() for s in sizes])).all())


def _is_plain(gradient: torch.Tensor) -> bool:
    kind = type(gradient) is torch.Tensor and gradient.layout is torch.strided
    return kind and gradient.device.type == "cpu" and gradient.is_floating_point() and gradient.numel() > 0
