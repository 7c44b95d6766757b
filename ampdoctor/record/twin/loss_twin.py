"""The loss in FP32 from the run's own outputs: what half precision does to it after the last weights.

A carried twin that starts from the parameters tells what rounding does to the loss all in all. This one takes over
the run's result of each operation that has weights in it, and executes what follows in FP32: what it ends in is what
the criterion would give for the same outputs, had they been cast to FP32.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ampdoctor.record.headroom import device_in_use, room_beside_step
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.kinds import has_memory, strided
from ampdoctor.record.twin.operations import Kind
from ampdoctor.record.twin.storages import Budget, NotTwinnable
from ampdoctor.trace.schema import TwinRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.log import Scalar, StepLog, Values
    from ampdoctor.record.twin.operations import Operation

NAME = "fp32:loss"
"""What it is called in the trace, as a setting."""

_SHARE = 0.5
"""Of the memory that twins may take in all, as most of the forward is followed for nothing."""

_CASTS = frozenset({torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default})


class LossTwin:
    """Follows the forward of one step; a Follower.

    Attributes:
        not_twinned: operations whose twins took the run's own result, with the reason and how often.
    """

    def __init__(self) -> None:
        self._carried = CarriedTwin(FP32)
        self._carried.storages.budget = Budget(_SHARE * room_beside_step(device_in_use()))
        self._weights: dict[int, StorageWeakRef] = {}
        self._off = False
        self.not_twinned: Counter[str] = Counter()

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        """Follow an operation of the forward, unless weights go into it."""
        if self._off or operation.place.backward:
            return None
        try:
            if self._weighted(operation):
                return lambda result: self._taken_over(operation, result)
            then = self._carried.before(operation)
        except (torch.cuda.OutOfMemoryError, NotTwinnable):
            self.clear(off=True)
            return None
        return None if then is None else lambda result: self._then(then, result)

    def queue(self, log: StepLog, root: torch.Tensor, scale: Scalar) -> None:
        """Queue the value that a backward pass is about to start from, and forget how it came about."""
        if self._off:
            return
        try:
            value = log.scalar(self._carried.values(root).detach())
        except NotTwinnable:
            return
        finally:
            self.clear()
        seq, step, batch = log.next_seq(), log.step, log.micro_batch

        def build(found: Values) -> TwinRow | None:
            loss, own = found.number(value), found.number(scale)
            if loss is None:
                return None
            return TwinRow(
                step=step, micro_batch=batch, seq=seq, counterfactual=NAME, number_format="fp32", loss_scale=own,
                fp32_modules=[], role="loss", module="", slot="", call=0, shape=[], numel=0, nonzero=0, flushed=0,
                subnormal=0, overflowed=0, nonfinite=0, nonfinite_fp32=0, sum_squares_fp32=0.0, absmax=0.0,
                value=loss / (own or 1.0),
            )  # fmt: skip

        log.row("twins", build)

    def clear(self, *, off: bool = False) -> None:
        """Let go of all twins, and with `off` look at nothing more."""
        self._off |= off
        self._carried.storages.clear()

    def _weighted(self, operation: Operation) -> bool:
        """Whether weights, or a cast of them, go into an operation; a cast or view of them is but that."""
        weights = [t for t in strided(operation.args, operation.kwargs) if self._is_weight(t)]
        if not weights:
            return False
        return operation.traits.kind not in {Kind.VIEW, Kind.READ}

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        key = tensor.untyped_storage()._cdata
        if key in self._weights:
            return True
        leaf = isinstance(tensor, torch.nn.Parameter) or (tensor.requires_grad and tensor.is_leaf)
        if leaf and tensor.ndim > 1:
            self._note(tensor)
            return True
        return False

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._weights[storage._cdata] = StorageWeakRef(storage)

    def _taken_over(self, operation: Operation, result: Any) -> None:
        for tensor in strided((*operation.written(), result), {}):
            self._carried.storages.forget(tensor)
            if operation.function in _CASTS and has_memory(tensor):
                self._note(tensor)

    def _then(self, then: Callable[[Any], None], result: Any) -> None:
        if self._off:
            return
        try:
            then(result)
        except torch.cuda.OutOfMemoryError:
            self.clear(off=True)
