"""Half gradients that several backward passes of one step add up to, and the same sums in FP32 beside them.

Autograd adds in the dtype of `.grad`: once the total is 256 times what is added, BF16 does not move any more. Followed
on examined steps, from the second addition on: the first one puts the gradient there, and hooks on that would make
torch copy what it otherwise takes as it is.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import fits
from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from ampdoctor.record.guard import Guard

GRADIENT_SUM_COLUMNS = ("additions", "sum_cosine", "sum_norm_ratio")

_WORKING_COPIES = 6
"""FP32 copies of one gradient that the sum and the comparison hold at once, in halves."""


@dataclass
class _Sum:
    """The sum of one parameter's gradient; `version` is that of `.grad` after the last addition seen."""

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int
    exact: torch.Tensor
    additions: int = 0

    def follows(self, gradient: torch.Tensor | None) -> bool:
        """Whether nobody but autograd has changed the gradient since."""
        return gradient is not None and self.gradient() is gradient and self.version == gradient._version


class GradientSums:
    """The sums of the step at hand."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sum | None] = {}

    def clear(self) -> None:
        """Forget them: the step is over."""
        self._sums.clear()

    def follow(self, node: Any, parameter: torch.Tensor, guard: Guard) -> RemovableHandle | None:
        """Add up what `node`, which accumulates the gradient of `parameter`, is about to add to a half gradient."""
        gradient = parameter.grad
        if gradient is None or gradient.dtype not in HALVES or not measurable(gradient):
            return None
        known = self._sums.get(id(parameter))
        if known is None or known.parameter() is not parameter or not known.follows(gradient):
            room = fits([gradient] * _WORKING_COPIES)
            self._sums[id(parameter)] = _begun(parameter, gradient) if room else None
        if self._sums[id(parameter)] is None:
            return None
        own = weakref.ref(parameter)

        def add(arriving: tuple[torch.Tensor | None, ...]) -> None:
            with guard:
                self._add(own(), arriving[0])

        handle: RemovableHandle = node.register_prehook(add)
        return handle

    def compared(self, parameter: torch.Tensor) -> tuple[torch.Tensor, tuple[str, ...]] | None:
        """Return the numbers of GRADIENT_SUM_COLUMNS of a gradient that was added up in half, None for others."""
        known = self._sums.get(id(parameter))
        if known is None or known.parameter() is not parameter or not known.additions:
            return None
        gradient = parameter.grad
        if gradient is None or not known.follows(gradient):
            return None
        return _compared(gradient.detach(), known.exact, known.additions), GRADIENT_SUM_COLUMNS

    def _add(self, parameter: torch.Tensor | None, arriving: torch.Tensor | None) -> None:
        if parameter is None or arriving is None or not measurable(arriving):
            return
        known = self._sums.get(id(parameter))
        if known is None or arriving.shape != known.exact.shape:
            return
        if not known.follows(parameter.grad):
            self._sums[id(parameter)] = None
            return
        with torch.no_grad():
            known.exact.add_(arriving)
        known.version += 1
        known.additions += 1


def _begun(parameter: torch.Tensor, gradient: torch.Tensor) -> _Sum:
    exact = gradient.detach().to(torch.float32, copy=True)
    return _Sum(weakref.ref(parameter), weakref.ref(gradient), gradient._version, exact)


def _compared(gradient: torch.Tensor, exact: torch.Tensor, additions: int) -> torch.Tensor:
    with torch.no_grad():
        ours, true = gradient.float(), exact
        tiny = torch.finfo(torch.float64).tiny
        own, all_of_it = (t.square().sum(dtype=torch.float64) for t in (ours, true))
        dot = (ours * true).sum(dtype=torch.float64)
        cosine = dot / (own * all_of_it).sqrt().clamp_min(tiny)
        ratio = (own / all_of_it.clamp_min(tiny)).sqrt()
        count = torch.full_like(ratio, float(additions))
        return torch.stack([count, cosine, ratio])
