"""The table of what a step rounds that half precision or FP8 may not hold: whole numbers, phases, scaled tensors."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, INT, STRING, STRINGS, nullable, required, table


@table("roundings")
@dataclass(frozen=True, kw_only=True)
class RoundingRow:
    """One place where numbers were rounded on a watched step, or before the first one, while data were made ready.

    Watched are the first step with all that comes before it and, where it casts to FP8 or sends half numbers to other
    ranks, every step examined. Calls that agree in kind, operation, dtypes, module and line are added up.
    """

    step: int = required(INT, "Step it belongs to.")
    seq: int = required(INT, "Order of the first call among the step's operations.")
    kind: str = required(
        STRING,
        "integers (whole numbers that half does not hold), phases (of sin and cos, that were rounded to half), float8 "
        "(casts to FP8), sent (to other ranks, in half), or watched: one a step, that its operations were seen.",
    )
    module: str = required(STRING, "Module path; empty outside any module.")
    op: str = required(STRING, "The operation (aten._to_copy).")
    dtype_in: str = required(STRING, "dtype that went in.")
    dtype_out: str = required(
        STRING, "dtype that they were rounded to; of phases, the half that they or their frequencies were last in."
    )  # fmt: skip
    file: str | None = nullable(STRING, "Source file of the user's line that ran it.")
    line: int | None = nullable(INT, "That line.")
    function: str | None = nullable(STRING, "The function that the line is in.")
    calls: int = required(INT, "Calls added up; watched: the operations seen.")
    numel: int = required(INT, "Elements.")
    largest: float | None = nullable(FLOAT, "Largest finite magnitude before the rounding.")
    rms: float | None = nullable(FLOAT, "phases (in radians), sent: root mean square before the rounding.")
    changed: int | None = nullable(INT, "integers: elements that were changed.")
    distinct: int | None = nullable(INT, "integers: different numbers before, of those looked at.")
    distinct_after: int | None = nullable(INT, "integers: different numbers left of them.")
    even_steps: bool | None = nullable(
        BOOL, "integers: they count up or down in even steps along a dimension, as positions do."
    )
    led_to: list[str] | None = nullable(
        STRINGS,
        "What they went on to in this step: sin, cos, integer (cast back), equal (compared), weight (of what gradients "
        "flow through); phases: product (their sine or cosine was multiplied with other values, as a rotation does).",
    )
    nonzero: int | None = nullable(INT, "float8, sent: elements that were not zero before.")
    flushed: int | None = nullable(INT, "float8, sent: those of them that are zero after it.")
    beyond: int | None = nullable(
        INT, "float8, sent: elements beyond the format's largest number, before they were clamped to it or cast."
    )  # fmt: skip
    energy_flushed: float | None = nullable(
        FLOAT,
        "Share of the sum of squares that lies in flushed elements: sent: of all calls; float8: of the call that lost "
        "most, as each tensor has a scale of its own.",
        "share",
    )
    energy_beyond: float | None = nullable(
        FLOAT, "Sum of squares of what clamping took, over that of all elements, in the same way.", "share"
    )
