"""Turns tensors into rows of the `tensors` table: one place for all roles."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from dataclasses import dataclass, field
from itertools import islice
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.formats import format_of_dtype
from ampdoctor.record.stats import LOWEST, Statistics, measurable, statistics_vector
from ampdoctor.trace.schema import TensorRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampdoctor.record.log import Deferred, Scalar, StepLog, Values

_MAX_TENSORS = 16
"""Tensors taken from one module call; a cache of thousands of tensors is no activation."""

_MAX_DEPTH = 4


HALVES = frozenset({torch.float16, torch.bfloat16})
"""The dtypes meant by "half"."""


def tensors_in(value: Any, depth: int = _MAX_DEPTH) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists, mappings and dataclass-like objects.

    Only the type of an object is asked what it is, and only what it holds is looked at: the user's own attribute
    look-up, iteration or properties may do anything.
    """
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield value
        return
    items: Iterator[Any]
    if not depth:
        return
    if issubclass(kind, (tuple, list)):
        items = (tuple if issubclass(kind, tuple) else list).__iter__(value)
    elif issubclass(kind, dict):
        items = iter(dict.values(value))
    elif hasattr(kind, "__dataclass_fields__"):
        items = _fields(value, kind)
    else:
        return
    for item in islice(items, _MAX_TENSORS):
        yield from tensors_in(item, depth - 1)


def _fields(value: Any, kind: Any) -> Iterator[Any]:
    """Yield the fields of a dataclass that are set."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots alone
        held = {}
    for name in kind.__dataclass_fields__:
        slot = inspect.getattr_static(kind, name, None)
        if name in held:
            yield held[name]
        elif isinstance(slot, MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                yield slot.__get__(value)


def autocast_dtype(device_type: str) -> str | None:
    """Return the autocast dtype in force for `device_type`, None where autocast is off."""
    # Torch knows no autocast for some devices (meta) and would raise.
    if not torch.amp.is_autocast_available(device_type) or not torch.is_autocast_enabled(device_type):
        return None
    return dtype_name(torch.get_autocast_dtype(device_type))


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name without "torch."."""
    return str(dtype).removeprefix("torch.")


@dataclass
class TensorLog:
    """Measures the tensors of one examined step, each once.

    Attributes:
        log: the step that the rows belong to.
        observer: shown each tensor too, with its site and the number of the module's call.
    """

    log: StepLog
    observer: Callable[[torch.Tensor, tuple[str, str, str], int], None] | None = None
    _seen: dict[int, tuple[weakref.ref[torch.Tensor], int, Deferred]] = field(default_factory=dict)

    def known(self, tensor: torch.Tensor) -> Deferred | None:
        """Return the statistics of a tensor measured before in this step and not changed in place since."""
        entry = self._seen.get(id(tensor))
        if entry is None or entry[0]() is not tensor or entry[1] != _version(tensor):
            return None
        return entry[2]

    def measure(self, tensor: torch.Tensor, extra: torch.Tensor | None = None) -> Deferred:
        """Queue the statistics of `tensor`, with `extra` numbers behind them."""
        with torch.no_grad(), _autocast_off(tensor.device.type):
            vector = statistics_vector(tensor)
            key = self.log.keep(vector if extra is None else torch.cat([vector, extra]))
        if extra is None:
            self._seen[id(tensor)] = (weakref.ref(tensor), _version(tensor), key)
        return key

    def add(
        self,
        tensor: torch.Tensor,
        site: tuple[str, str, str],
        *,
        depends_on: Sequence[Deferred] | None = None,
        scale: Scalar = None,
        extra: tuple[torch.Tensor, Sequence[str]] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Deferred | None:
        """Measure `tensor` and queue its row; returns None where it can't be measured.

        Args:
            tensor: any tensor.
            site: module path, role, slot.
            depends_on: statistics of the tensors that went into it, for `inputs_finite`.
            scale: loss scale that multiplies the values.
            extra: numbers for further columns, and their names.
            columns: further columns.
        """
        if not measurable(tensor):
            return None
        try:
            key = self.measure(tensor, extra[0] if extra else None)
        except torch.cuda.OutOfMemoryError:
            # The user's own step may still fit: this row is given up, and nothing else.
            return None
        module, role, slot = site
        fixed: dict[str, Any] = {
            "step": self.log.step, "micro_batch": self.log.micro_batch, "seq": self.log.next_seq(), "module": module,
            "role": role, "slot": slot, "call": 0, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape),
            "numel": tensor.numel() * (2 if tensor.is_complex() else 1), "grad_enabled": True,
        }  # fmt: skip
        fixed |= columns or {}
        names = extra[1] if extra else ()

        def build(values: Values) -> TensorRow:
            found = values.statistics(key)
            late = dict(zip(names, found.extra, strict=True))
            if depends_on is not None:
                late["inputs_finite"] = not any(values.statistics(k).nonfinite for k in depends_on)
            if scale is not None:
                late["loss_scale"] = values.number(scale)  # type: ignore[assignment]
            return TensorRow(**fixed, **_columns(found, fixed["dtype"]), **_whole(late))

        self.log.row("tensors", build)
        if self.observer is not None:
            self.observer(tensor, site, fixed["call"])
        return key


def _columns(found: Statistics, dtype: str) -> dict[str, Any]:
    finite = found.zeros + sum(found.exp_counts)
    number_format = format_of_dtype(dtype)
    edge = max(number_format.min_exponent if number_format else LOWEST, LOWEST)
    return {
        "zeros": found.zeros, "nan": found.nan, "posinf": found.posinf, "neginf": found.neginf,
        "subnormal": sum(found.exp_counts[: max(0, edge - found.exp_lowest)]), "absmax": found.absmax,
        "rms": (found.sum_squares / finite) ** 0.5 if finite else 0.0, "exp_lowest": found.exp_lowest,
        "exp_counts": found.exp_counts,
    }  # fmt: skip


_COUNTS = frozenset({"expected_to_move", "unchanged", "small_updates", "small_updates_moved", "additions"})


def _whole(late: dict[str, Any]) -> dict[str, Any]:
    return {name: int(value) if name in _COUNTS else value for name, value in late.items()}


def _version(tensor: torch.Tensor) -> int:
    # Inference tensors keep no version counter and can't be changed in place outside inference mode.
    return 0 if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def _autocast_off(device_type: str) -> Iterator[None]:
    """Not by torch.autocast: leaving that may clear the cache of cast weights, and with it change the gradients."""
    if autocast_dtype(device_type) is None:
        yield
        return
    torch.set_autocast_enabled(device_type, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device_type, True)
