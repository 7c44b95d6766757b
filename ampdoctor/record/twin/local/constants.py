"""Numbers beside the tensors of an operation that are zero in the tensors' dtype: eps = 1e-8 in FP16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.local.natures import base_of, plain_name
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from ampdoctor.record.twin.operations import Operation

_ADDS = frozenset({"add", "sub", "rsub"})
_BOUNDS = frozenset({"clamp", "clamp_min", "maximum", "where", "masked_fill"})
_FILLS = frozenset({"fill", "full", "full_like", "new_full", "scalar_tensor"})
_GUARDS = _ADDS | _BOUNDS | _FILLS
"""What adds a number, bounds by it or writes it: a factor that is small makes no difference of this kind."""


def lost_constant(operation: Operation) -> float | None:
    """Return the smallest number of an operation in half that is not zero, and is in its dtype; None without one."""
    if plain_name(base_of(operation.traits.name)) not in _GUARDS:
        return None
    values = (*operation.args, *operation.kwargs.values())
    numbers = [abs(v) for v in map(_number, values) if v]
    if not numbers:
        return None
    dtypes = {t.dtype for t in tensors_of(values) if t.ndim} & HALVES
    dtypes |= {d for d in values if isinstance(d, torch.dtype) and d in HALVES}
    lost = [n for n in numbers if any(n <= torch.finfo(d).smallest_normal * torch.finfo(d).eps / 2 for d in dtypes)]
    return min(lost, default=None)


def _number(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, torch.Tensor) and value.ndim == 0 and value.device.type == "cpu":
        return float(value.detach()) if value.is_floating_point() else None
    return None
