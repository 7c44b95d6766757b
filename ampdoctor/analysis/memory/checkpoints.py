"""Which modules would be worth checkpointing: what they keep, less what must be kept to compute it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memory.ledgers import total
from ampdoctor.formats import format_of_dtype

if TYPE_CHECKING:
    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import MemoryRow


@dataclass(frozen=True)
class Checkpoints:
    """Modules of one kind, each a region of its own.

    Attributes:
        modules: their paths.
        kept_bytes: what they keep for the backward pass.
        saves_bytes: what of it need not be there at the same time: all, less the regions' inputs and the largest
            region, which is there again while it is computed anew.
        forward_ms: time of their operations in the forward pass; None where none was taken.
        step_ms: time of all operations of the step.
    """

    modules: tuple[str, ...]
    kept_bytes: int
    saves_bytes: int
    forward_ms: float | None
    step_ms: float


def checkpoints(run: Run, ledger: Ledger) -> list[Checkpoints]:
    """Return the lists of blocks of a model that would save something."""
    families: dict[str, dict[str, list[MemoryRow]]] = {}
    for row in ledger.at("forward", "activations"):
        block = _block(row.module or "")
        if block:
            family = block.rpartition(".")[0]
            families.setdefault(family, {}).setdefault(block, []).append(row)
    found = [_family(run, ledger, blocks) for family in families.values() if (blocks := _with_parts(family))]
    return [each for each in found if each.saves_bytes > 0]


def _with_parts(blocks: dict[str, list[MemoryRow]]) -> dict[str, list[MemoryRow]]:
    """Return those that are more than a single layer, whose output is all that it keeps."""
    return {block: rows for block, rows in blocks.items() if any(row.module != block for row in rows)}


def _family(run: Run, ledger: Ledger, blocks: dict[str, list[MemoryRow]]) -> Checkpoints:
    sizes = {block: total(rows) for block, rows in blocks.items()}
    outputs = _outputs(run)
    inputs = sum(outputs.get(block, 0) for block in blocks)
    kept = sum(sizes.values())
    timed = [r for r in run.timings if r.step == ledger.step]
    mine = [r for r in timed if r.direction == "forward" and _block(r.module or "") in blocks]
    on_device = any(r.device_ms for r in timed)
    times = [(r.device_ms or 0.0) if on_device else r.host_ms for r in timed]
    forward = sum((r.device_ms or 0.0) if on_device else r.host_ms for r in mine)
    return Checkpoints(tuple(blocks), kept, kept - inputs - max(sizes.values()), forward if mine else None, sum(times))


def _outputs(run: Run) -> dict[str, int]:
    """Return the bytes of what each module hands on, which is the next one's input, as far as it was recorded."""
    found: dict[str, int] = {}
    for row in run.tensors("activation"):
        number_format = format_of_dtype(row.dtype)
        if row.slot.startswith("out") and number_format is not None:
            found[row.module] = row.numel * (number_format.bytes or 0)
    return found


def _block(module: str) -> str:
    """Return the path of the block in a list of such that a module lies in: up to its first number; empty without."""
    parts = module.split(".")
    for place, part in enumerate(parts):
        if not part:
            return ""
        if part.isdecimal():
            return ".".join(parts[: place + 1])
    return ""
