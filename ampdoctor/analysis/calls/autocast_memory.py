"""What autocast adds to memory on a step, and what it saves: half copies of weights against half activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.operations import operations
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.memory.layouts import FP32, layout_at, own_layout
from ampdoctor.analysis.memory.ledgers import FORWARD, ledgers, total
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

_HALF_BYTES, _FP32_BYTES = 2, 4


@dataclass(frozen=True)
class AutocastMemory:
    """The memory of one examined step under autocast.

    Attributes:
        step: index of the step.
        copied: FP32 weights of which autocast makes a half copy, kept until the backward pass has used it.
        copy_bytes: bytes of those copies.
        saved_bytes: bytes by which half activations are smaller than FP32 ones, at the most.
        weight_bytes: bytes of all FP32 weights.
        modules: modules with such weights.
        recorded: the step's memory was recorded: the bytes are those when its backward pass began, and not worked out
            from shapes.
    """

    step: int
    copied: int
    copy_bytes: int
    saved_bytes: int
    weight_bytes: int
    modules: tuple[str, ...]
    recorded: bool = False


@once_per_run
def autocast_memory(run: Run) -> AutocastMemory | None:
    """Return that of the last examined step with a half copy of a weight; None where there is none.

    Where the memory of a step was recorded, it is that step's.
    """
    by_step: dict[int, list[TensorRow]] = {}
    for row in run.tensors("activation", "weight"):
        by_step.setdefault(row.step, []).append(row)
    of_steps = (_of_step(run, step, rows) for step, rows in sorted(by_step.items(), reverse=True))
    found = next((memory for memory in of_steps if memory is not None), None)
    return None if found is None else _as_recorded(run, found)


def _as_recorded(run: Run, found: AutocastMemory) -> AutocastMemory:
    """Return what was recorded in place of what was worked out, where anything was."""
    ledger = next((each for each in reversed(ledgers(run).values()) if each.autocast is not None), None)
    if ledger is None or not own_layout(ledger).startswith("amp-"):
        return found
    # Where the backward pass begins: later, in the optimizer, there may be more, and nothing of autocast's is left.
    own = layout_at(ledger, FORWARD, own_layout(ledger)).components
    fp32 = layout_at(ledger, FORWARD, FP32).components
    copies = ledger.at(FORWARD, "autocast_cache")
    return replace(
        found,
        step=ledger.step,
        copied=sum(row.storages for row in copies),
        copy_bytes=total(copies),
        saved_bytes=max(fp32["activations"].bytes - own["activations"].bytes, 0),
        weight_bytes=own["weights"].bytes,
        recorded=True,
    )


def _of_step(run: Run, step: int, rows: Sequence[TensorRow]) -> AutocastMemory | None:
    half = [r for r in rows if r.role == "activation" and _is_half(r) and r.slot.startswith("out")]
    casting = {r.module for r in half if r.autocast in HALF_DTYPES}
    weights = {r.site: r for r in rows if r.role == "weight" and r.dtype == "float32"}.values()
    # Vectors are casts of next to nothing, and embeddings are looked up in FP32.
    copied = [w for w in weights if w.module in casting and len(w.shape) > 1]
    if not copied:
        return None
    elements = max(_elements(half), _elements_of_operations(run, step))
    return AutocastMemory(
        step=step,
        copied=len(copied),
        copy_bytes=_HALF_BYTES * _elements(copied),
        saved_bytes=(_FP32_BYTES - _HALF_BYTES) * elements,
        weight_bytes=_FP32_BYTES * _elements(weights),
        modules=tuple(dict.fromkeys(w.module for w in copied)),
    )


def _is_half(row: TensorRow) -> bool:
    return row.dtype in HALF_DTYPES and row.grad_enabled


def _elements(rows: Iterable[TensorRow]) -> int:
    return sum(row.numel for row in rows)


def _elements_of_operations(run: Run, step: int) -> int:
    """Return the elements that operations of the forward pass, inside modules too, made in half; casts left out."""
    rows = operations(run).get(step, ())
    return sum(
        row.numel
        for row in rows
        if row.direction == "forward" and row.dtype_out in HALF_DTYPES and "_to_copy" not in row.op
    )
