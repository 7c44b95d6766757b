"""Which operations local twins look at, read from the operation once."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.operations import Kind, tensors_of, traits_of

WIDER = dict.fromkeys(HALVES, torch.float32) | {torch.complex32: torch.complex64}
"""What takes the place of a half dtype."""

NARROW = HALVES | {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
"""dtypes that a cast may lose something in."""

NARROW_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8})
"""Every value of them fits into BF16 and FP16."""


_OWN = torch.Tensor.__torch_dispatch__


class Nature(Enum):
    """How local twins treat an operation."""

    SKIPPED = "skipped"
    """It moves, selects or compares values, draws or reads: nothing is lost in it whatever the dtype."""
    OPAQUE = "opaque"
    """It can't be executed a second time."""
    CAST = "cast"
    SUM = "sum"
    """It adds something to a total, which may be too small to change it."""
    COMPUTED = "computed"


_MOVES = """
    clone contiguous cat stack index index_select gather embedding select_backward slice_backward constant_pad_nd roll
    flip repeat repeat_interleave zero_ zeros zeros_like ones ones_like empty empty_like empty_strided new_zeros
    new_ones new_empty new_empty_strided resize_ tril triu tril_ triu_ slice_scatter select_scatter scatter scatter_
    masked_select masked_scatter masked_scatter_ unfold_backward diag_embed _foreach_zero_ lift_fresh _unsafe_view
    _reshape_alias _reshape_copy view_copy
"""

_SELECTS = """
    relu relu_ threshold threshold_backward neg neg_ abs abs_ sign maximum minimum clamp_min max min amax amin topk
    sort max_pool2d_with_indices max_pool3d_with_indices where masked_fill masked_fill_ _foreach_neg _foreach_abs
"""

_COMPARES = """
    eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not argmax argmin nonzero any all
"""

_EXACT = frozenset((_MOVES + _SELECTS + _COMPARES).split())

_CASTS = frozenset({"_to_copy", "copy_", "_foreach_copy_"})

_SUMS = frozenset({"add", "sub", "lerp", "addcmul", "addcdiv"})

_LOGS = frozenset({"log", "log2", "log10", "log1p", "xlogy", "logit"})
_ROOTS = frozenset({"sqrt", "rsqrt", "pow", "linalg_vector_norm", "norm"})
SINGULAR = _LOGS | _ROOTS | {"div", "reciprocal"}
"""What makes NaN or infinities of finite FP32 values: of zeros that were flushed before, for instance."""

LANDMARKS = frozenset({"_softmax", "_log_softmax"})
"""What tells what a result is for: scores go into them, which FP32 may compute of half products."""

_KEEPS_WORKSPACE = ("_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer_backward")
"""Their layout in memory is one of their own for each dtype."""


@cache
def nature_of(operation: Any) -> Nature:
    """Return how an OpOverload is treated."""
    traits = traits_of(operation)
    base = base_of(traits.name)
    if traits.kind is Kind.OPAQUE or base.startswith(_KEEPS_WORKSPACE):
        return Nature.OPAQUE
    if traits.kind in {Kind.VIEW, Kind.READ, Kind.DRAW} or base in _EXACT:
        return Nature.SKIPPED
    if base in _CASTS:
        return Nature.CAST
    return Nature.SUM if plain_name(base) in _SUMS else Nature.COMPUTED


def base_of(name: str) -> str:
    """Return `mm` of `aten.mm`."""
    return name.rpartition(".")[2]


def plain_name(base: str) -> str:
    """Return `add` of `add_`, `_foreach_add_` and the like."""
    return base.removeprefix("_foreach_").removesuffix("_")


def touches_half(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a half tensor goes in, or half is asked for."""
    for value in (*args, *kwargs.values()):
        if value in WIDER if isinstance(value, torch.dtype) else _any_half(value):
            return True
    return False


def can_lose(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether a cast can change a value, where the target is a narrow floating-point dtype."""
    if target not in NARROW or source == target or source in NARROW_INTEGERS:
        return False
    return source.itemsize >= target.itemsize or source not in NARROW


def plain(tensor: torch.Tensor) -> bool:
    """Whether its values lie in plain memory."""
    own = type(tensor).__torch_dispatch__ is _OWN
    dense = tensor.layout is torch.strided and not tensor.is_quantized
    return own and dense and not tensor.is_meta


def _any_half(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype in WIDER
    return isinstance(value, (list, tuple)) and any(t.dtype in WIDER for t in tensors_of(value))
