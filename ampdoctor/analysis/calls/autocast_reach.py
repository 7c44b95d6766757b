"""Where a `torch.autocast` block does not reach: another device, another thread, a model that is called beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.autocast_blocks import autocast_blocks
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.half_used import any_autocast, half_dtypes
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.analysis.calls.autocast_blocks import AutocastBlock
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, TensorRow

DEVICE, THREAD, ELSEWHERE, OUTSIDE = "device", "thread", "elsewhere", "outside"


@dataclass(frozen=True)
class Missed:
    """Blocks that were entered in vain.

    Attributes:
        kind: DEVICE (made for another one), THREAD (another thread calls the modules), ELSEWHERE (another thread does
            the whole training), OUTSIDE (the model is called beside the block).
        blocks: the blocks, first one first.
        outputs: what the trained modules returned, where the training thread called them.
        threaded: calls of trained modules by other threads.
        devices: device types that the modules' parameters are on.
    """

    kind: str
    blocks: tuple[AutocastBlock, ...]
    outputs: tuple[TensorRow, ...]
    threaded: tuple[CallRow, ...]
    devices: tuple[str, ...]


@once_per_run
def missed_blocks(run: Run) -> Missed | None:
    """Return the blocks of `run` that do not reach what is trained; None where there are none, or some do."""
    asked = tuple(b for b in autocast_blocks(run) if b.asked)
    threaded = tuple(c for c in calls_named(run, "threaded_call") if c.optimizers and not c.autocast)
    outputs = tuple(r for r in run.tensors("activation") if r.grad_enabled and r.slot.startswith("out"))
    devices = {m.device for m in run.modules if m.device}
    devices |= {c.device_type for c in threaded if c.device_type}
    on = tuple(sorted(devices))
    right = tuple(b for b in asked if b.in_force and (not on or b.enter.device_type in on))
    around = tuple(b for b in right if any(b.holds(c) for c in threaded))
    if around:
        return Missed(THREAD, around, outputs, threaded, on)
    if not asked or half_dtypes(run) or any_autocast(run):
        return None
    if not right:
        known = outputs or threaded or not run.modules
        return Missed(DEVICE, asked, outputs, threaded, on) if known else None
    open_around = tuple(b for b in right if any(_in_force_around(run, b, r) for r in outputs))
    if open_around:
        return Missed(ELSEWHERE, open_around, outputs, threaded, on)
    # Something that has a gradient is computed in the block, but none of it in half.
    beside = tuple(b for b in right if b.left is not None and b.left.nodes)
    return Missed(OUTSIDE, beside, outputs, threaded, on) if beside and outputs else None


def _in_force_around(run: Run, block: AutocastBlock, row: TensorRow) -> bool:
    """Whether `row` was made while `block` was open and nothing had switched autocast off within it.

    Autocast was off for it all the same (else it would say so): it is a thread's own.
    """
    within = (b for b in autocast_blocks(run) if not b.in_force and b.begin > block.begin)
    return block.holds(row) and not any(b.holds(row) for b in within)
