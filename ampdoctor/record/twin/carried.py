"""A carried twin: every operation of the step executed once more on twins, from the parameters to the gradients.

A tensor without a twin is the same in both worlds. Where a twin's operation can't be executed, what the run computed
stands for it, and the operation is named.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.attention import IN_FP32
from ampdoctor.record.twin.conversion import Conversion
from ampdoctor.record.twin.kinds import HALF_COMPLEX, check, dense, has_memory, strided
from ampdoctor.record.twin.operations import Kind, Operation, tensors_of
from ampdoctor.record.twin.outside import Outside
from ampdoctor.record.twin.randomness import Draws, masked_dropout
from ampdoctor.record.twin.seeds import Seeds
from ampdoctor.record.twin.storages import NotTwinnable, TwinStorages
from ampdoctor.record.twin.streams import record
from ampdoctor.record.twin.threads import LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.record.twin.counterfactual import Counterfactual

_COPY = torch.ops.aten._to_copy.default
_RECORD_STREAM = torch.ops.aten.record_stream.default
_ONES = torch.ops.aten.ones_like.default
_ADDS = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor})


class CarriedTwin:
    """The step in the setting of one counterfactual.

    Attributes:
        counterfactual: the setting.
        storages: the twins.
        not_twinned: operations whose twins took the run's own result, with the reason and how often.
    """

    def __init__(self, counterfactual: Counterfactual) -> None:
        self.counterfactual = counterfactual
        self.storages = TwinStorages()
        self.not_twinned: Counter[str] = Counter()
        self._mixed = False
        self._dtype = counterfactual.dtype
        self._any_island = bool(counterfactual.fp32_modules)
        self._seeds = Seeds(self.storages, self._dtype, self.not_twinned)
        self._outside = Outside(self.storages, self.not_twinned)
        self._conversion = Conversion(self.storages, self.not_twinned, any_island=self._any_island)
        self.before_kernel = self._outside.before_kernel

    @property
    def mixed(self) -> bool:
        """Whether some of its gradients, taken over from the run, are at the run's loss scale and not at its own."""
        taken = self._mixed or self._outside.in_backward
        return taken and self.counterfactual.loss_scale is not None

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        """Prepare the twin of an operation that is about to run.

        Returns what to call with the run's result; None where the result is the same in both worlds.
        """
        for written in dense(list(operation.written())):
            if has_memory(written):
                self.storages.before_write(written)
        self._outside.touched(operation)
        seeds = self._seeds
        if seeds.implicit and operation.function is _ONES:
            seeds.implicit -= 1
            return lambda result: self.storages.put(result, torch.full_like(result, seeds.factor))
        if operation.traits.allocates and not self._other_shape(operation):
            return self._allocating(operation)
        if operation.function is _RECORD_STREAM:
            self._record_stream(*operation.args)
        if operation.traits.kind in {Kind.VIEW, Kind.READ} or not self._concerned(operation):
            return None
        return self._prepared(operation)

    def _prepared(self, operation: Operation) -> Callable[[Any], None]:
        """Return what makes the twin of an operation that can come out differently, given its result."""
        kind = operation.traits.kind
        if kind is Kind.OPAQUE:
            return self._follow(operation, "executed by the run only")
        if kind is Kind.DRAW:
            return lambda result: self._take_over(operation, result)
        try:
            args, kwargs = operation.mapped(self._conversion.of(operation, self._half_at(operation)))
        except NotTwinnable as reason:
            return self._follow(operation, str(reason))
        draws = Draws.of(operation) if operation.traits.draws else None
        return lambda result: self._execute(operation, args, kwargs, result, draws)

    def values(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what `tensor` is in this world; the tensor itself where that is the same.

        Raises:
            NotTwinnable: it has no place in memory to look at (a sparse tensor).
        """
        with LOCK:
            if not tensor._is_zerotensor():
                check(tensor)
                self._outside.read(tensor)
                twin = self.storages.of(tensor)
                if twin is not None:
                    return self.storages.view(tensor, twin)
            return tensor.to(self._dtype) if tensor.dtype in HALVES else tensor

    def replace(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Make `values` the twin of `tensor`, from outside any operation."""
        with LOCK:
            self.storages.put(tensor, values)

    def seed(self, given: Sequence[torch.Tensor | None], factor: float) -> None:
        """Start the backward pass that is about to begin from `factor` times what the run starts from.

        Args:
            given: per root the gradient that was handed to `backward`; None where that makes ones of its own.
            factor: of a power of two, which changes no digit: another loss scale.
        """
        with LOCK:
            self._seeds.plant(given, factor)

    def seed_taken(self) -> None:
        """The backward pass is over; a gradient of the user's that it started from is itself again."""
        with LOCK:
            self._seeds.take_back()

    def _allocating(self, operation: Operation) -> Callable[[Any], None]:
        """Room for values needs none in the twin yet; what is in it when it is first read is the run's."""
        before = [t.untyped_storage().nbytes() for t in operation.written() if has_memory(t)]
        name = operation.traits.name
        waiting = self._resizing(operation) if before else None

        def allocated(result: torch.Tensor) -> None:
            if waiting is not None:
                waiting(result)
            floats = has_memory(result) and result.is_floating_point()
            if floats and result.untyped_storage().nbytes() > sum(before):
                self._outside.allocated(result, name)

        return allocated

    def _resizing(self, operation: Operation) -> Callable[[Any], None] | None:
        half = self._half_at(operation)
        if not self._concerned(operation):
            return None
        try:
            args, kwargs = operation.mapped(lambda value, written: self._conversion.twin(value, written, half))
        except NotTwinnable as reason:
            return self._follow(operation, str(reason))
        return lambda result: self._execute(operation, args, kwargs, result, None)

    def _other_shape(self, operation: Operation) -> bool:
        """Whether an argument has another shape in this world."""
        known = (self.storages.of(t) for t in strided(operation.args, operation.kwargs))
        return any(twin is not None and twin.verbatim is not None for twin in known)

    def _record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        twin = self.storages.of(tensor) if has_memory(tensor) else None
        if twin is not None:
            with contextlib.suppress(NotTwinnable):
                record(self.storages.view(tensor, twin), stream)

    def _half_at(self, operation: Operation) -> torch.dtype:
        """Return what half is where the operation stands."""
        module = operation.place.module
        inside = self._any_island and module is not None and self.counterfactual.keeps_in_fp32(module)
        if inside and operation.place.backward and operation.function in _ADDS:
            # Gradients of one tensor are added up where the last of them was computed, wherever the tensor belongs.
            inside = all(self._is_fp32(t) for t in tensors_of(operation.args))
        return torch.float32 if inside else self._dtype

    def _is_fp32(self, tensor: torch.Tensor) -> bool:
        twin = self.storages.of(tensor) if has_memory(tensor) else None
        return (tensor.dtype if twin is None else twin.dtype) is torch.float32

    def _concerned(self, operation: Operation) -> bool:
        """Whether the operation could come out differently: a twin goes in, or another format is meant."""
        for tensor in tensors_of((*operation.args, *operation.kwargs.values())):
            if tensor.is_meta:
                return False  # torch works out a shape; there are no values
            if tensor._is_zerotensor():
                if tensor.dtype in HALVES:
                    return True
            elif not has_memory(tensor):
                if tensor.layout is not torch.sparse_coo or self._concerns(tensor._values()):
                    return True
            elif self._concerns(tensor):
                return True
        named = (v for v in (*operation.args, *operation.kwargs.values()) if isinstance(v, torch.dtype))
        return any(d in HALVES and (self._any_island or d is not self._dtype) for d in named)

    def _concerns(self, tensor: torch.Tensor) -> bool:
        other = tensor.dtype in HALVES and (self._any_island or tensor.dtype is not self._dtype)
        return (
            other or self.storages.of(tensor) is not None or tensor.dtype is HALF_COMPLEX
        )  # fmt: skip

    def _execute(
        self, operation: Operation, args: list[Any], kwargs: dict[str, Any], result: Any, draws: Draws | None
    ) -> None:
        if operation.function is _COPY and self._lent(args, kwargs, result):
            return
        try:
            if operation.function in IN_FP32 and self._half_at(operation) is torch.float32:
                twin = IN_FP32[operation.function](operation.function, args, kwargs, result)
            elif draws is None:
                twin = operation.function(*args, **kwargs)
            else:
                twin = masked_dropout(operation, args, result) or draws.again(operation.function, args, kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotTwinnable) as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            self._name(operation, str(error).partition("\n")[0][:120])
            self._take_over(operation, result)
            return
        self._register(operation, result, twin)

    def _lent(self, args: list[Any], kwargs: dict[str, Any], result: torch.Tensor) -> bool:
        """A cast that changes nothing in this world needs no memory."""
        source = args[0]
        dtype = kwargs.get("dtype") or source.dtype
        if source.dtype is not dtype or source.device != result.device or source.numel() == 0:
            return False
        return self.storages.lend(result, source)

    def _register(self, operation: Operation, result: Any, twin: Any) -> None:
        """Make the twin's results the twins of the run's results; what was written in place is there already."""
        places = {t.untyped_storage()._cdata for t in strided(operation.args, operation.kwargs)}
        for ours, other in zip(dense(result), dense(twin), strict=True):
            if not has_memory(ours) or ours.untyped_storage()._cdata in places:
                continue
            if ours.dtype not in HALVES and other.dtype is not ours.dtype:
                other = other.to(ours.dtype)  # noqa: PLW2901 - the same values, as the run keeps them
            self.storages.put(ours, other)

    def _follow(self, operation: Operation, reason: str) -> Callable[[Any], None]:
        def take_over(result: Any) -> None:
            self._name(operation, reason)
            self._take_over(operation, result)

        return take_over

    def _take_over(self, operation: Operation, result: Any) -> None:
        """What the run has computed stands for the twin as well."""
        half = self._half_at(operation)
        for tensor in (*dense(result), *dense(list(operation.written()))):
            if has_memory(tensor):
                self.storages.take_over(tensor, half)
                self._mixed |= operation.place.backward and tensor.is_floating_point()

    def _name(self, operation: Operation, reason: str) -> None:
        self.not_twinned[f"{operation.traits.name}: {reason}"] += 1
