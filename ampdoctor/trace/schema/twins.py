"""The tables of the second opinion: the same step in other formats and loss scales, and each operation by itself."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, INT, INTS, STRING, STRINGS, nullable, required, table


@table("twin_steps")
@dataclass(frozen=True, kw_only=True)
class TwinStepRow:
    """One second opinion: a step that was executed in other settings as well, or why it was not."""

    step: int = required(INT, "Step that it belongs to.")
    kind: str = required(
        STRING,
        "carried (twins beside the live step), local (each operation by itself) or replay (a step that had failed).",
    )
    reason: str = required(STRING, "Why: first, asked, or the vital that turned.")
    counterfactuals: list[str] = required(STRINGS, "The settings that were carried.")
    declined: str | None = nullable(STRING, "Why nothing, or less than planned, was executed.")
    not_twinned: list[str] = required(STRINGS, "Operations whose twins took the run's own result, with the reason.")
    operations: int = required(INT, "Operations seen.")
    wall_ms: float | None = nullable(FLOAT, "Time that it added, host side.", "ms")
    twin_bytes: int | None = nullable(INT, "Most memory that the twins held at a time.", "bytes")
    eager: bool = required(BOOL, "Compiled modules ran eagerly for this step.")
    confirmed: bool | None = nullable(
        BOOL,
        "replay: in the run's own settings every output came out as in the step: to the bit for outputs of up to 4096 "
        "elements, by a checksum over all bits for those of up to 2^24, by 4096 elements for larger ones.",
    )


@table("twins")
@dataclass(frozen=True, kw_only=True)
class TwinRow:
    """One tensor of one counterfactual beside the FP32 twin of the same tensor; what was measured of it.

    Values of gradients are compared after each was divided by its own loss scale.
    """

    step: int = required(INT, "Step that was twinned.")
    micro_batch: int | None = nullable(INT, "Backward pass within the step; null for what they add up to.")
    seq: int = required(INT, "Order within the step, shared with tensors and calls.")
    counterfactual: str = required(
        STRING,
        "run (what the run itself computed), fp32, bf16, fp16@2^10, fp16@2^10+fp32:decoder, or fp32:loss (what FP32 "
        "makes of the results that the run's last operations with weights came to; loss only).",
    )
    number_format: str | None = nullable(
        STRING, "Format of what is half in the run; null for run, whose halves may be mixed."
    )
    loss_scale: float | None = nullable(FLOAT, "Loss scale in its gradients; null for none.")
    fp32_modules: list[str] = required(STRINGS, "Modules whose casts to half are undone.")
    role: str = required(
        STRING, "weight_grad, grad_output, activation, gradient (all weight gradients together) or loss."
    )
    module: str = required(STRING, "Module path; empty for the root, gradient and loss.")
    slot: str = required(STRING, "As in tensors; empty for gradient and loss.")
    call: int = required(INT, "Which call of the module within the step, from 0.")
    shape: list[int] = required(INTS, "Shape; empty for gradient and loss.")
    numel: int = required(INT, "Elements.")
    nonzero: int = required(INT, "Elements that are nonzero in the FP32 twin.")
    flushed: int = required(INT, "Elements that are zero here and nonzero in the FP32 twin.")
    too_small: int | None = nullable(
        INT,
        "Those of flushed that in FP32, at this loss scale, are below the format's smallest normal number. The rest is "
        "no underflow: where a ReLU's input rounds to the other side of 0, its gradient is masked.",
    )
    subnormal: int = required(
        INT, "Nonzero elements below the smallest normal number of the format (of the run's half)."
    )
    overflowed: int = required(INT, "Elements that are NaN or infinite here, finite in the FP32 twin.")
    nonfinite: int = required(INT, "Elements that are NaN or infinite here.")
    nonfinite_fp32: int = required(INT, "Elements that are NaN or infinite in the FP32 twin.")
    cosine: float | None = nullable(FLOAT, "Cosine to the FP32 twin; null where either is all zero or not finite.")
    norm_ratio: float | None = nullable(
        FLOAT, "Norm over that of the FP32 twin; null where that is zero or either is not finite."
    )
    energy_lost: float | None = nullable(
        FLOAT, "Share of the FP32 twin's sum of squares that lies in too_small elements.", "share"
    )
    sum_squares_fp32: float = required(
        FLOAT, "Sum of squares of the FP32 twin's finite elements, loss scale divided out."
    )
    absmax: float = required(FLOAT, "Largest finite magnitude, the loss scale divided out.")
    value: float | None = nullable(FLOAT, "loss: its value, the loss scale divided out.")
    exp_lowest: int | None = nullable(
        INT, "fp32: exponent of the first entry of exp_counts, the loss scale divided out."
    )
    exp_counts: list[int] | None = nullable(
        INTS, "fp32: elements by floor(log2|x|), from exp_lowest up, the loss scale divided out."
    )

    @property
    def site(self) -> str:
        """The site as people read it: module path and slot, `encoder.0.weight`."""
        return f"{self.module}.{self.slot}" if self.module else self.slot

    @property
    def underflowed(self) -> int:
        """Elements flushed because they were too small."""
        return self.flushed if self.too_small is None else self.too_small


@table("ops")
@dataclass(frozen=True, kw_only=True)
class OpRow:
    """What one operation does to its inputs: its result beside that of the same operation in FP32 (local twins).

    Calls of one backward pass that agree in module, op, direction, dtypes, function and source line are added up.
    """

    step: int = required(INT, "Step it belongs to.")
    micro_batch: int = required(INT, "Backward passes before it within the step.")
    seq: int = required(INT, "Order of the first call among the step's operations.")
    first_lost: int | None = nullable(
        INT, "Order of the first call that flushed, absorbed or rounded integers away; null for none."
    )
    first_born: int | None = nullable(
        INT, "Order of the first call whose result was not finite although its inputs were."
    )
    module: str = required(STRING, "Module path; empty outside any module.")
    op: str = required(STRING, "The operation (aten.mm).")
    direction: str = required(STRING, "forward or backward.")
    dtype_in: str = required(STRING, "dtypes of its tensors, each once, joined by commas.")
    dtype_out: str = required(STRING, "dtypes of its results, each once, joined by commas.")
    file: str | None = nullable(STRING, "Source file of the user's line that ran it, or whose forward it undoes.")
    line: int | None = nullable(INT, "That line.")
    function: str | None = nullable(STRING, "The function that the line is in.")
    source: str = required(STRING, "live or replay.")
    calls: int = required(INT, "Calls added up.")
    numel: int = required(INT, "Elements of the results.")
    nonzero: int = required(INT, "Elements that are nonzero in FP32.")
    flushed: int = required(INT, "Elements that are zero, and nonzero in FP32.")
    energy_lost: float | None = nullable(
        FLOAT, "Share of the FP32 result's sum of squares that lies in flushed elements.", "share"
    )
    overflowed: int = required(INT, "Elements that are NaN or infinite, and finite in FP32.")
    born: int = required(
        INT, "NaN or infinite elements of calls whose inputs were all finite (softmax: or -inf, as a mask is)."
    )
    born_fp32: int = required(INT, "Those of them that are not finite in FP32 either.")
    absorbed: int | None = nullable(INT, "Sums: elements with a + b == a although b != 0; null for other operations.")
    integers_lost: int | None = nullable(
        INT, "Casts and arange: whole numbers that were changed; null for other operations."
    )
    cancelled: int | None = nullable(
        INT, "Sums and differences: elements of which rounding of the inputs leaves under 2 bits."
    )
    relative_error: float | None = nullable(
        FLOAT, "Norm of the difference to FP32 over the FP32 norm, finite elements only; null for sums of FP32."
    )
    absmax: float = required(FLOAT, "Largest finite magnitude of the FP32 result, as scaled in the run.")
    loss_scale: float | None = nullable(FLOAT, "backward: loss scale in the values.")
    inputs_from: list[int] | None = nullable(
        INTS,
        "seq of the rows whose results went in, also through what has no row (views, selections, most of FP32); -1 for "
        "what was there before the step: a parameter, data, a constant.",
    )
    constant: float | None = nullable(
        FLOAT,
        "Sums, bounds and fills: smallest number beside the tensors that is zero in their dtype (eps = 1e-8 in FP16).",
    )
