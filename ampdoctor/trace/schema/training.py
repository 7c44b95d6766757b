"""The tables of what the training itself did."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, FLOATS, INT, INTS, STRING, STRINGS, nullable, required, table


@table("steps")
@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One optimizer step, applied or skipped: what is known of every step, examined or not."""

    step: int = required(INT, "Index of the step, from 0.")
    time: float = required(FLOAT, "When the step ended, seconds since the epoch.", "s")
    wall_ms: float = required(FLOAT, "Duration, from the end of the step before.", "ms")
    micro_batches: int = required(INT, "Backward passes within the step.")
    loss: float | None = nullable(FLOAT, "Sum of the tensors that backward() was called on, divided by the loss scale.")
    loss_scale: float | None = nullable(FLOAT, "Loss scale in force; null without an enabled scaler.")
    found_inf: bool | None = nullable(BOOL, "The scaler saw a nonfinite gradient.")
    applied: bool | None = nullable(BOOL, "An optimizer changed the weights; false on a skipped step.")
    grad_norm: float | None = nullable(FLOAT, "Total norm that the user's clip_grad_norm_ returned, scaled or not.")
    lr: float | None = nullable(FLOAT, "Learning rate of the first parameter group.")
    examined: bool = required(BOOL, "Tensors were recorded on this step.")
    reason: str | None = nullable(STRING, "Why it was examined: first, interval, asked, or the vital that turned.")
    dropped: int | None = nullable(
        INT, "Rows of it that were given up, because the disk was too slow; without its tensors it is not examined."
    )
    totals_watched: bool | None = nullable(
        BOOL, "Sums into totals in half were looked at on this step, from its start on (accumulators)."
    )
    examination_ms: float | None = nullable(FLOAT, "ampdoctor's own time on this step.", "ms")
    allocated_bytes: int | None = nullable(INT, "CUDA memory allocated at the end of the step.", "bytes")
    peak_bytes: int | None = nullable(INT, "Peak of the CUDA memory allocated so far.", "bytes")
    held_graphs: int | None = nullable(INT, "Earlier steps whose loss still has its graph: something holds on to it.")


@table("tensors")
@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """One tensor on one examined step: what is kept of its values."""

    step: int = required(INT, "Step on which it was measured.")
    micro_batch: int = required(INT, "Backward pass within the step, from 0.")
    seq: int = required(INT, "Order of arrival within the step.")
    module: str = required(STRING, "Module path; empty for the root and for bare parameters.")
    role: str = required(
        STRING, "activation, grad_output, weight, weight_grad, update, optimizer_state or buffer (running statistics)."
    )
    slot: str = required(
        STRING,
        "Which tensor: out, out.1, in for a tensor that reached the module from no other module, cast for a gradient "
        "just before a cast to a narrower dtype; else the parameter's name, with its state's name (weight.exp_avg).",
    )
    call: int = required(INT, "Which call of the module within the step, from 0.")
    dtype: str = required(STRING, "torch dtype (float16).")
    shape: list[int] = required(INTS, "Shape.")
    numel: int = required(INT, "Elements.")
    zeros: int = required(INT, "Elements equal to zero; says nothing about why.")
    nan: int = required(INT, "Elements that are NaN.")
    posinf: int = required(INT, "Elements equal to +inf.")
    neginf: int = required(INT, "Elements equal to -inf.")
    subnormal: int = required(INT, "Nonzero elements below the dtype's smallest normal number.")
    absmax: float = required(FLOAT, "Largest finite magnitude.")
    rms: float = required(FLOAT, "Root mean square of the finite elements.")
    exp_lowest: int = required(INT, "Exponent of the first entry of exp_counts.")
    exp_counts: list[int] = required(INTS, "Elements by floor(log2|x|), from exp_lowest up.")
    sampled: int | None = nullable(
        INT, "Elements drawn to estimate zeros, subnormal, rms and exp_counts (--sample-above); null: all were counted."
    )
    sample_error: float | None = nullable(
        FLOAT, "How far, with 99 % confidence, any such count may be off; null where it is exact.", "share of numel"
    )
    loss_scale: float | None = nullable(FLOAT, "Loss scale that multiplies the values (grad_output, weight_grad).")
    autocast: str | None = nullable(STRING, "Autocast dtype in force in the forward; null if off.")
    grad_enabled: bool = required(BOOL, "Gradients were being recorded in the forward.")
    cast_to: str | None = nullable(STRING, "dtype that the gradient is cast to next (slot cast).")
    inputs_finite: bool | None = nullable(BOOL, "All inputs and weights of the module were finite (activation).")
    expected_to_move: int | None = nullable(
        INT,
        "Elements that the optimizer means to change (update of half weights); elements whose gradient and value are "
        "not both zero (optimizer_state in half).",
    )
    unchanged: int | None = nullable(INT, "Those of expected_to_move that kept their value.")
    energy_unchanged: float | None = nullable(
        FLOAT, "Share of the intended update's sum of squares that lies in them.", "share"
    )
    small_updates: int | None = nullable(
        INT, "Elements whose intended update is surely below half a last place of the weight."
    )
    small_updates_moved: int | None = nullable(
        INT, "Those of small_updates that moved all the same: stochastic rounding, Kahan."
    )
    square_cosine: float | None = nullable(
        FLOAT,
        "optimizer_state in half: cosine to the square of the gradient that the optimizer used; 1 on the first step of "
        "a second moment.",
    )
    square_ratio: float | None = nullable(
        FLOAT, "optimizer_state in half: sum of that square over the sum of the state's magnitudes."
    )
    additions: int | None = nullable(
        INT, "weight_grad in half: backward passes of this step that added to what was there."
    )
    sum_cosine: float | None = nullable(
        FLOAT, "Cosine of the accumulated gradient to the same sum in FP32 (with additions)."
    )
    sum_norm_ratio: float | None = nullable(FLOAT, "Its norm over that of the sum in FP32 (with additions).")
    part: int | None = nullable(
        INT, "Which part of a tensor that is spread over ranks (DTensor) this is, from 0; null: the whole."
    )
    parts: int | None = nullable(INT, "How many parts there are; several ranks may hold copies of one (with part).")
    whole_shape: list[int] | None = nullable(INTS, "Shape of the whole tensor (with part).")

    @property
    def site(self) -> str:
        """The site as people read it: module path and slot, `encoder.0.weight`."""
        return f"{self.module}.{self.slot}" if self.module else self.slot

    @property
    def nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.nan + self.posinf + self.neginf


@table("scaler")
@dataclass(frozen=True, kw_only=True)
class ScalerRow:
    """One event of a GradScaler."""

    step: int = required(INT, "Step it belongs to.")
    seq: int = required(INT, "Order within the step, shared with calls.")
    scaler: str = required(STRING, "Name of the scaler (scaler0).")
    event: str = required(
        STRING, "seen (first use), unscale, step, skip; of update: growth, backoff, hold or set (by hand)."
    )
    optimizer: str | None = nullable(STRING, "Optimizer concerned (unscale, step, skip).")
    scale: float | None = nullable(FLOAT, "Scale before the event.")
    scale_after: float | None = nullable(FLOAT, "Scale after it (growth, backoff, hold, set).")
    found_inf: bool | None = nullable(BOOL, "A gradient was nonfinite (step, skip).")
    enabled: bool | None = nullable(BOOL, "The scaler is enabled (seen).")
    device_type: str | None = nullable(STRING, "Device type that it was made for (seen).")
    growth_factor: float | None = nullable(FLOAT, "As configured (seen).")
    backoff_factor: float | None = nullable(FLOAT, "As configured (seen).")
    growth_interval: int | None = nullable(INT, "As configured (seen).", "steps")


@table("accumulators")
@dataclass(frozen=True, kw_only=True)
class AccumulatorRow:
    """Sums into a total that code keeps in half outside of autograd: averages of weights, metrics, gradients.

    Those of one step that agree in line, operation, kind, origin and dtype are added up.
    """

    step: int = required(INT, "Step it belongs to.")
    file: str | None = nullable(STRING, "Source file of the line that adds.")
    line: int | None = nullable(INT, "That line.")
    function: str | None = nullable(STRING, "The function that the line is in.")
    op: str = required(STRING, "add, sub, lerp, addcmul, addcdiv, or copy of a sum that was made in FP32.")
    kind: str = required(STRING, "average (of a total that decays) or sum.")
    added: str | None = nullable(
        STRING, "What is added was made from weights (weight) or by a backward pass (gradient)."
    )
    dtype: str = required(STRING, "dtype of the total.")
    calls: int = required(INT, "Sums added up; one for each tensor.")
    totals: int | None = nullable(INT, "Different totals among them.")
    numel: int = required(INT, "Elements of the totals; of a large one, those looked at, spread evenly.")
    nonzero: int = required(INT, "Elements that FP32 would have changed.")
    absorbed: int = required(INT, "Those of nonzero that kept their value.")
    energy_absorbed: float | None = nullable(
        FLOAT, "Share of the increments' sum of squares that lies in them.", "share"
    )
    increment: float | None = nullable(FLOAT, "Root mean square of what FP32 would have changed them by.")
    absmax: float = required(FLOAT, "Largest magnitude of the totals.")
    rate: float | None = nullable(
        FLOAT, "average: share of the way to what is added that a sum goes (1 - decay), where a number says so."
    )
    lasting: bool = required(BOOL, "The totals were there before the step.")
    compensated: bool = required(BOOL, "Two values of the total are subtracted afterwards, as Kahan summation does.")


@table("modules")
@dataclass(frozen=True, kw_only=True)
class ModuleRow:
    """One module of the model, as it was when first seen."""

    step: int = required(INT, "Step on which it was first seen.")
    module: str = required(STRING, "Module path.")
    type: str = required(STRING, "Class name.")
    leaf: bool = required(BOOL, "It has no child modules.")
    parameters: int = required(INT, "Elements of its own parameters.")
    trainable: int = required(INT, "Those that require gradients.")
    dtypes: list[str] = required(STRINGS, "dtypes of its own parameters.")
    optimizer: str | None = nullable(STRING, "Optimizer that holds its parameters.")
    training: bool = required(BOOL, "It was in training mode.")
    device: str | None = nullable(STRING, "Device type of its own parameters; null for one without any.")


@table("optimizers")
@dataclass(frozen=True, kw_only=True)
class OptimizerRow:
    """One parameter group of an optimizer, as it was when first stepped."""

    step: int = required(INT, "Step on which it was first seen.")
    optimizer: str = required(STRING, "Name of the optimizer (optimizer0).")
    type: str = required(STRING, "Class name; package.module.Class where it is none of torch.optim's own.")
    group: int = required(INT, "Index of the parameter group.")
    lr: float | None = nullable(FLOAT, "Learning rate.")
    weight_decay: float | None = nullable(FLOAT, "Weight decay.")
    eps: float | None = nullable(FLOAT, "eps of Adam and its kin.")
    momentum: float | None = nullable(FLOAT, "Momentum of SGD and its kin.")
    betas: list[float] | None = nullable(FLOATS, "Betas of Adam and its kin.")
    fused: bool | None = nullable(BOOL, "Fused implementation asked for.")
    foreach: bool | None = nullable(BOOL, "Foreach implementation asked for.")
    parameters: int = required(INT, "Parameters in the group.")
    numel: int = required(INT, "Elements in the group.")
    dtypes: list[str] = required(STRINGS, "dtypes of the parameters.")
