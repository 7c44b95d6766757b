"""Whether what goes into an operation is finite: only then was a NaN or an infinity in its result born there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.local.measures import Measure
from ampdoctor.record.twin.local.natures import WIDER
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.record.twin.local.measures import Measured
    from ampdoctor.record.twin.operations import Operation


MASKS = "softmax"
"""Part of the names of operations that are meant to get -inf: what they make NaN of it, a row that is all mask, is born
there. An overflow that had made the -inf would be the first birth."""

_LOWEST = -1e4
"""In place of -inf, within every format's range."""


class Inputs:
    """The inputs of one operation.

    On the CPU they are looked at only if the result is not finite; what is about to be overwritten, at once.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], *, finite: bool = True, masked: bool = False) -> None:
        self._tensors, self._masked = tensors, masked
        self._finite: bool | torch.Tensor = finite

    @classmethod
    def of(cls, operation: Operation) -> Inputs:
        """Return the inputs of an operation that is about to run; `out=` arguments are none."""
        writes = operation.traits.writes
        if not writes:
            numbers = (*operation.args, *operation.kwargs.values())
            finite = not any(map(_infinite_number, numbers))
            return cls(operation.tensors, finite=finite, masked=MASKS in operation.traits.name)
        read = [a for n, a in enumerate(operation.args) if n not in writes]
        read += [a for name, a in operation.kwargs.items() if name not in writes]
        inputs = cls([*tensors_of(read)], finite=not any(map(_infinite_number, read)))
        changed = [a for n, a in enumerate(operation.args) if n in writes]
        for tensor in tensors_of(changed):
            if tensor.is_floating_point():
                inputs._finite = inputs._finite & all_finite(tensor)
        return inputs

    def kept(self, vector: Measured) -> Measured:
        """Return the vector, with nothing born where the inputs were not finite."""
        born = slice(Measure.BORN, Measure.BORN_FP32 + 1)
        if not isinstance(vector, list):
            vector[born] *= self._all()
        elif vector[Measure.BORN] and not self._all():
            vector[born] = [0.0, 0.0]
        return vector

    def _all(self) -> bool | torch.Tensor:
        finite = self._finite
        for tensor in self._tensors:
            if finite is False:
                return False
            if tensor.is_floating_point():
                finite = finite & all_finite(tensor.clamp_min(_LOWEST) if self._masked else tensor)
        return finite


def all_finite(tensor: torch.Tensor) -> bool | torch.Tensor:
    """Whether all elements are finite, by their sum; on an accelerator the answer stays there."""
    values = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # float8 knows no sum
    total = values.detach().sum(dtype=torch.float64 if tensor.is_cuda else torch.float32)
    if tensor.device.type != "cpu":
        return torch.isfinite(total)
    # A sum may overflow though no element has.
    return math.isfinite(total.item()) or bool(torch.isfinite(values).all())


def wider(value: Any, written: bool) -> Any:
    """Return a tensor or dtype as the operation is given it in FP32; what it writes to is a copy."""
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value.clone() if written else value


def _infinite_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, (list, tuple)) and any(map(_infinite_number, value))
