"""The tables of where a step's memory and time went."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, INT, STRING, nullable, required, table

COPY = "(copy)"
"""Ends the kind of activations that are there only because a tensor is kept twice, or cast twice."""


@table("memory")
@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """What lived at one moment of a step whose ledger was kept, by what it was for."""

    step: int = required(INT, "Index of the step.")
    phase: str = required(
        STRING,
        "The moment: forward (the backward pass begins), backward (the optimizer begins), step (the step is over) or "
        "peak (most bytes lived).",
    )
    device: str = required(STRING, "Device (cpu, cuda:0).")
    component: str = required(
        STRING,
        "weights, master_weights, gradients, optimizer, activations (kept for the backward pass), autocast_cache (half "
        "copies of weights), buffers, temporary, other (was there before the step, and is none of these), allocated "
        "and reserved (what torch's CUDA allocator says).",
    )
    kind: str | None = nullable(
        STRING,
        "Which optimizer state (exp_avg); of activations the operation that made them, with `(copy)` where it is a "
        "cast to half of what is kept too, or was cast before.",
    )
    module: str | None = nullable(STRING, "Path of the module that made the activations.")
    dtype: str | None = nullable(STRING, "torch dtype; null of what the allocator says.")
    bytes: int = required(INT, "Bytes, of unique storages; on CUDA in the allocator's blocks of 512.", "bytes")
    storages: int = required(INT, "Storages that are counted.")


@table("paces")
@dataclass(frozen=True, kw_only=True)
class PaceRow:
    """How long the modules of one step took in one precision, executed again (--prove)."""

    step: int = required(INT, "Index of the step.")
    setting: str = required(STRING, "fp32 (autocast off), bf16 or fp16 (autocast); none where none was timed.")
    own: bool = required(BOOL, "The run itself is in this setting.")
    device: str = required(STRING, "Kind of device (cpu, cuda).")
    wall_ms: float | None = nullable(FLOAT, "Forward and backward, the median of the rounds.", "ms")
    fastest_ms: float | None = nullable(FLOAT, "The shortest of the rounds.", "ms")
    slowest_ms: float | None = nullable(FLOAT, "The longest of the rounds.", "ms")
    rounds: int = required(INT, "How often it was timed; the settings take turns.")
    kept_bytes: int | None = nullable(
        INT,
        "What one call of a module keeps for the backward pass, half copies of weights included; of several the most.",
        "bytes",
    )
    declined: str | None = nullable(STRING, "Why it was not, or what was left out.")


@table("timings")
@dataclass(frozen=True, kw_only=True)
class TimingRow:
    """Operations of a step whose ledger was kept, added up by where they are and what they compute in."""

    step: int = required(INT, "Index of the step.")
    module: str | None = nullable(STRING, "Path of the innermost module; null outside any.")
    op: str = required(STRING, "Operation (aten.mm).")
    direction: str = required(STRING, "forward, backward or step (within the optimizer).")
    dtype_in: str | None = nullable(STRING, "dtype of the first floating-point argument.")
    dtype_out: str | None = nullable(STRING, "dtype of the first floating-point result.")
    autocast: str | None = nullable(STRING, "dtype that autocast was on for; null where it was off.")
    calls: int = required(INT, "How often.")
    host_ms: float = required(FLOAT, "Time on the host; on a CPU that of the computation.", "ms")
    device_ms: float | None = nullable(FLOAT, "Time on the CUDA device.", "ms")
    numel: int = required(INT, "Elements of the results.")
    misaligned: int = required(
        INT, "Calls of half matrix products and convolutions with a size that is no multiple of 16 bytes."
    )
