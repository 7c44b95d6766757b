"""One operation executed in FP32 on the run's own inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import fits
from ampdoctor.record.twin.attention import IN_FP32
from ampdoctor.record.twin.local.inputs import wider
from ampdoctor.record.twin.local.natures import WIDER, base_of, plain
from ampdoctor.record.twin.operations import tensors_of
from ampdoctor.record.twin.randomness import Draws, masked_dropout
from ampdoctor.record.twin.storages import NotTwinnable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.record.twin.operations import Operation

_SURE_TO_FIT = 1 << 25
"""Elements whose FP32 copies are made without asking how much memory there is."""

_COPIES = 3
"""Room for an input twice as wide and a result like it, in tensors of the input's size."""

_DROPOUT = torch.ops.aten.native_dropout.default
AFTER_THE_RUN = frozenset({_DROPOUT, *IN_FP32})
"""Dropout takes the run's own mask, and so is executed after the run's; fused attention what is no value of its own."""

_HALF_TO_FLOAT = frozenset({"_softmax", "_log_softmax"})
"""Their third argument asks for an FP32 result, which only half tensors may."""


FAILURES = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""What torch raises where it knows an operation in one dtype and not in another."""


class NotExecutedError(Exception):
    """The operation can't be executed in FP32; the message says why."""


def check(operation: Operation) -> None:
    """Look for what keeps an operation from being executed in FP32.

    Raises:
        NotExecutedError: something does.
    """
    tensors = operation.tensors
    odd = next((t for t in tensors if not plain(t)), None)
    if odd is not None:
        layout = str(odd.layout).removeprefix("torch.")
        name = type(odd).__name__ if odd.layout is torch.strided else layout
        raise NotExecutedError(f"{name} tensor")
    halves = [t for t in tensors if t.dtype in WIDER]
    if sum(t.numel() for t in halves) > _SURE_TO_FIT and not fits(halves * _COPIES):
        raise NotExecutedError("no memory for FP32 copies")


def execute(operation: Operation, result: Any = None) -> list[torch.Tensor]:
    """Return the results of an operation in FP32; `result`, that of the run, is asked for by AFTER_THE_RUN alone.

    Raises:
        NotExecutedError: there is no memory for it; and FAILURES where it knows no FP32.
    """
    args, kwargs = operation.mapped(wider)
    if base_of(operation.traits.name) in _HALF_TO_FLOAT:
        args[2] = False
    try:
        if operation.function is _DROPOUT:
            twin: Any = masked_dropout(operation, args, result)
        elif operation.function in IN_FP32:
            twin = IN_FP32[operation.function](operation.function, args, kwargs, result)
        elif operation.traits.draws:
            twin = Draws.of(operation).again(operation.function, args, kwargs)
        else:
            twin = operation.function(*args, **kwargs)
    except torch.cuda.OutOfMemoryError:
        raise NotExecutedError("out of memory") from None
    except NotTwinnable as reason:
        raise NotExecutedError(str(reason)) from None
    return results(operation, args, kwargs, twin)


def results(operation: Operation, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> list[torch.Tensor]:
    """Return what the operation has written to, given its arguments, and what it has returned besides."""
    writes = operation.traits.writes
    if not writes:
        return [*tensors_of(result)]
    written = [a for n, a in enumerate(args) if n in writes]
    found = [*tensors_of([*written, *(a for name, a in kwargs.items() if name in writes)])]
    return found + [t for t in tensors_of(result) if not any(t is w for w in found)]
