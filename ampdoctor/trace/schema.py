"""THE contract: every table of a run, one frozen dataclass a table, one field a column.

A field's Python type says what readers get and whether null is possible; its metadata holds the Arrow type, the unit
and the meaning. README and dashboard take their text from here. `None` (null) is "not measured", 0 is "measured zero".

Adding a nullable column or a table keeps VERSION. Anything that changes the meaning of what is there raises it, and
readers accept VERSION and VERSION - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
OLDEST_READABLE = 1

_STRING, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INTS, _FLOATS, _STRINGS = pa.list_(_INT), pa.list_(_FLOAT), pa.list_(_STRING)


@dataclass(frozen=True)
class Column:
    """One column as documented: name, Arrow type, unit ("" for none), meaning, whether null is possible."""

    name: str
    type: pa.DataType
    unit: str
    doc: str
    nullable: bool


@dataclass(frozen=True)
class Table:
    """One table of the trace: its name, meaning, row type and columns."""

    name: str
    doc: str
    row: type
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, stamped with the version."""
        return pa.schema(
            [pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns],
            metadata={"ampdoctor.schema_version": str(VERSION), "ampdoctor.table": self.name},
        )


TABLES: dict[str, Table] = {}
"""All tables by name."""

_Row = TypeVar("_Row")


def _required(arrow: pa.DataType, doc: str, unit: str = "") -> Any:
    return field(metadata={"type": arrow, "doc": doc, "unit": unit, "nullable": False})


def _nullable(arrow: pa.DataType, doc: str, unit: str = "") -> Any:
    return field(default=None, metadata={"type": arrow, "doc": doc, "unit": unit, "nullable": True})


def _table(name: str) -> Callable[[type[_Row]], type[_Row]]:
    def register(row: type[_Row]) -> type[_Row]:
        columns = tuple(
            Column(f.name, f.metadata["type"], f.metadata["unit"], f.metadata["doc"], f.metadata["nullable"])
            for f in fields(row)  # type: ignore[arg-type]
        )  # fmt: skip
        TABLES[name] = Table(name, (row.__doc__ or "").strip(), row, columns)
        return row

    return register


@_table("steps")
@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One optimizer step, applied or skipped: what is known of every step, examined or not."""

    step: int = _required(_INT, "Index of the step, from 0.")
    time: float = _required(_FLOAT, "When the step ended, seconds since the epoch.", "s")
    wall_ms: float = _required(_FLOAT, "Duration, from the end of the step before.", "ms")
    micro_batches: int = _required(_INT, "Backward passes within the step.")
    loss: float | None = _nullable(
        _FLOAT, "Sum of the tensors that backward() was called on, divided by the loss scale."
    )
    loss_scale: float | None = _nullable(
        _FLOAT, "Loss scale in force; null without an enabled scaler."
    )
    found_inf: bool | None = _nullable(_BOOL, "The scaler saw a nonfinite gradient.")
    applied: bool | None = _nullable(
        _BOOL, "An optimizer changed the weights; false on a skipped step."
    )
    grad_norm: float | None = _nullable(
        _FLOAT, "Total norm that the user's clip_grad_norm_ returned, scaled or not."
    )
    lr: float | None = _nullable(_FLOAT, "Learning rate of the first parameter group.")
    examined: bool = _required(_BOOL, "Tensors were recorded on this step.")
    reason: str | None = _nullable(
        _STRING, "Why it was examined: first, interval, asked, or the vital that turned."
    )
    examination_ms: float | None = _nullable(_FLOAT, "ampdoctor's own time on this step.", "ms")
    allocated_bytes: int | None = _nullable(
        _INT, "CUDA memory allocated at the end of the step.", "bytes"
    )
    peak_bytes: int | None = _nullable(_INT, "Peak of the CUDA memory allocated so far.", "bytes")


@_table("tensors")
@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """One tensor on one examined step: what is kept of its values."""

    step: int = _required(_INT, "Step on which it was measured.")
    micro_batch: int = _required(_INT, "Backward pass within the step, from 0.")
    seq: int = _required(_INT, "Order of arrival within the step.")
    module: str = _required(_STRING, "Module path; empty for the root and for bare parameters.")
    role: str = _required(
        _STRING, "activation, grad_output, weight, weight_grad, update or optimizer_state."
    )
    slot: str = _required(
        _STRING,
        "Which tensor: out, out.1, in for a tensor that reached the module from no other module, cast for a gradient "
        "just before a cast to a narrower dtype; else the parameter's name, with its state's name (weight.exp_avg).",
    )
    call: int = _required(_INT, "Which call of the module within the step, from 0.")
    dtype: str = _required(_STRING, "torch dtype (float16).")
    shape: list[int] = _required(_INTS, "Shape.")
    numel: int = _required(_INT, "Elements.")
    zeros: int = _required(_INT, "Elements equal to zero; says nothing about why.")
    nan: int = _required(_INT, "Elements that are NaN.")
    posinf: int = _required(_INT, "Elements equal to +inf.")
    neginf: int = _required(_INT, "Elements equal to -inf.")
    subnormal: int = _required(_INT, "Nonzero elements below the dtype's smallest normal number.")
    absmax: float = _required(_FLOAT, "Largest finite magnitude.")
    rms: float = _required(_FLOAT, "Root mean square of the finite elements.")
    exp_lowest: int = _required(_INT, "Exponent of the first entry of exp_counts.")
    exp_counts: list[int] = _required(_INTS, "Elements by floor(log2|x|), from exp_lowest up.")
    loss_scale: float | None = _nullable(
        _FLOAT, "Loss scale that multiplies the values (grad_output, weight_grad)."
    )
    autocast: str | None = _nullable(
        _STRING, "Autocast dtype in force in the forward; null if off."
    )
    grad_enabled: bool = _required(_BOOL, "Gradients were being recorded in the forward.")
    cast_to: str | None = _nullable(_STRING, "dtype that the gradient is cast to next (slot cast).")
    inputs_finite: bool | None = _nullable(
        _BOOL, "All inputs and weights of the module were finite (activation)."
    )
    expected_to_move: int | None = _nullable(
        _INT, "Elements that the optimizer means to change (update of half weights)."
    )
    unchanged: int | None = _nullable(_INT, "Those of expected_to_move that kept their value.")
    energy_unchanged: float | None = _nullable(
        _FLOAT, "Share of the intended update's sum of squares that lies in them.", "share"
    )
    small_updates: int | None = _nullable(
        _INT, "Elements whose intended update is surely below half a last place of the weight."
    )
    small_updates_moved: int | None = _nullable(
        _INT, "Those of small_updates that moved all the same: stochastic rounding, Kahan."
    )

    @property
    def site(self) -> str:
        """The site as people read it: module path and slot, `encoder.0.weight`."""
        return f"{self.module}.{self.slot}" if self.module else self.slot

    @property
    def nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.nan + self.posinf + self.neginf


@_table("scaler")
@dataclass(frozen=True, kw_only=True)
class ScalerRow:
    """One event of a GradScaler."""

    step: int = _required(_INT, "Step it belongs to.")
    seq: int = _required(_INT, "Order within the step, shared with calls.")
    scaler: str = _required(_STRING, "Name of the scaler (scaler0).")
    event: str = _required(
        _STRING,
        "seen (first use), unscale, step, skip, growth, backoff or hold (update, no change).",
    )
    optimizer: str | None = _nullable(_STRING, "Optimizer concerned (unscale, step, skip).")
    scale: float | None = _nullable(_FLOAT, "Scale before the event.")
    scale_after: float | None = _nullable(_FLOAT, "Scale after it (growth, backoff, hold).")
    found_inf: bool | None = _nullable(_BOOL, "A gradient was nonfinite (step, skip).")
    enabled: bool | None = _nullable(_BOOL, "The scaler is enabled (seen).")
    growth_factor: float | None = _nullable(_FLOAT, "As configured (seen).")
    backoff_factor: float | None = _nullable(_FLOAT, "As configured (seen).")
    growth_interval: int | None = _nullable(_INT, "As configured (seen).", "steps")


@_table("calls")
@dataclass(frozen=True, kw_only=True)
class CallRow:
    """One call that matters to mixed precision, with the line of the user's code that made it."""

    step: int = _required(_INT, "Step it belongs to.")
    micro_batch: int = _required(_INT, "Backward passes before it within the step.")
    seq: int = _required(_INT, "Order within the step.")
    call: str = _required(
        _STRING,
        "scale, backward, unscale, clip_norm, clip_value, scaler_step, optimizer_step, update or zero_grad.",
    )
    target: str | None = _nullable(_STRING, "Scaler or optimizer it was called on or for.")
    file: str | None = _nullable(_STRING, "Source file of the caller outside torch.")
    line: int | None = _nullable(_INT, "Line of the caller.")
    function: str | None = _nullable(_STRING, "Function of the caller.")
    autocast: str | None = _nullable(_STRING, "Autocast dtype in force; null if off.")
    scaled: str | None = _nullable(
        _STRING, "backward: whether a scaler scaled all, some or none of what it starts from."
    )
    factor: float | None = _nullable(
        _FLOAT,
        "backward: product of the numbers the loss was multiplied by in code, scaler excluded.",
    )
    largest_factor: float | None = _nullable(
        _FLOAT,
        "backward: the largest of those numbers; a hand-written loss scale shows in it where the loss is averaged too.",
    )
    optimizers: list[str] | None = _nullable(
        _STRINGS, "backward: optimizers whose parameters it reaches (examined steps)."
    )
    limit: float | None = _nullable(_FLOAT, "clip: the largest norm or value allowed.")
    norm: float | None = _nullable(_FLOAT, "clip: the total norm it returned.")
    error: str | None = _nullable(_STRING, "Exception that the call raised.")


@_table("modules")
@dataclass(frozen=True, kw_only=True)
class ModuleRow:
    """One module of the model, as it was when first seen."""

    step: int = _required(_INT, "Step on which it was first seen.")
    module: str = _required(_STRING, "Module path.")
    type: str = _required(_STRING, "Class name.")
    leaf: bool = _required(_BOOL, "It has no child modules.")
    parameters: int = _required(_INT, "Elements of its own parameters.")
    trainable: int = _required(_INT, "Those that require gradients.")
    dtypes: list[str] = _required(_STRINGS, "dtypes of its own parameters.")
    optimizer: str | None = _nullable(_STRING, "Optimizer that holds its parameters.")
    training: bool = _required(_BOOL, "It was in training mode.")


@_table("optimizers")
@dataclass(frozen=True, kw_only=True)
class OptimizerRow:
    """One parameter group of an optimizer, as it was when first stepped."""

    step: int = _required(_INT, "Step on which it was first seen.")
    optimizer: str = _required(_STRING, "Name of the optimizer (optimizer0).")
    type: str = _required(_STRING, "Class name.")
    group: int = _required(_INT, "Index of the parameter group.")
    lr: float | None = _nullable(_FLOAT, "Learning rate.")
    weight_decay: float | None = _nullable(_FLOAT, "Weight decay.")
    eps: float | None = _nullable(_FLOAT, "eps of Adam and its kin.")
    momentum: float | None = _nullable(_FLOAT, "Momentum of SGD and its kin.")
    betas: list[float] | None = _nullable(_FLOATS, "Betas of Adam and its kin.")
    fused: bool | None = _nullable(_BOOL, "Fused implementation asked for.")
    foreach: bool | None = _nullable(_BOOL, "Foreach implementation asked for.")
    parameters: int = _required(_INT, "Parameters in the group.")
    numel: int = _required(_INT, "Elements in the group.")
    dtypes: list[str] = _required(_STRINGS, "dtypes of the parameters.")
