"""Modules that ran in FP32 on purpose, and whose backward pass ran under autocast to FP16."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradient_sites import NEGLIGIBLE
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measurement import RUN
from ampdoctor.analysis.twins.opinions import twin_rows
from ampdoctor.formats import FP16, FP32, HALF_DTYPES
from ampdoctor.histogram import merge
from ampdoctor.trace.histograms import histogram_of
from ampdoctor.underflow import flushed_by_cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, TensorRow, TwinRow


@dataclass(frozen=True)
class Island:
    """One such module on one examined step.

    Attributes:
        backward: the backward pass.
        module: path of the module.
        gradient: the largest magnitude of the FP32 gradient that reached it.
        weight_gradient: the gradient of a weight matrix of it that came out; None where none was recorded.
        overflowed: that one is not finite, although what it is made of is, and FP32 would have held it.
        flushed: share of the elements of the gradient that reached it that its cast to FP16 makes zero; where a twin
            has measured its weight's gradient, of that one's elements.
        energy_lost: share of that gradient's energy that lies in them.
        by_twin: both are a twin's.
        cast_seen: the gradient was seen to be cast to FP16; without it, and without a twin, both are worked out from
            the FP32 gradient, as if it were.
    """

    backward: CallRow
    module: str
    gradient: float
    weight_gradient: TensorRow | None
    overflowed: bool
    flushed: float
    energy_lost: float
    by_twin: bool = False
    cast_seen: bool = False


def backwards_in_half(run: Run) -> list[CallRow]:
    """Return the backward passes that began while autocast to a half dtype was on, as recorded."""
    return [c for c in calls_named(run, "backward") if c.autocast in HALF_DTYPES]


@once_per_run
def backward_islands(run: Run) -> tuple[Island, ...]:
    """Return the islands of the examined steps, in order."""
    inside = backwards_in_half(run)
    if not inside:
        return ()
    rows: dict[int, list[TensorRow]] = defaultdict(list)
    for row in run.tensors("activation", "grad_output", "weight_grad"):
        rows[row.step].append(row)
    first: dict[int, CallRow] = {}
    for call in inside:
        first.setdefault(call.step, call)
    islands = (i for step, call in first.items() for i in _of_step(call, rows.get(step, [])))
    measured = {
        (t.step, t.module, t.role): t
        for t in twin_rows(run)
        if t.counterfactual == RUN and (t.role == "grad_output" or len(t.shape) > 1)
    }
    return tuple(_measured(i, measured, rows[i.backward.step]) for i in islands)


def _measured(island: Island, twins: Mapping[tuple[int, str, str], TwinRow], rows: list[TensorRow]) -> Island:
    """Return `island` as a twin has measured it, where one has and nothing but its own backward pass is to blame."""
    step, module = island.backward.step, island.module
    weight = twins.get((step, module, "weight_grad"))
    if weight is None or island.backward.autocast != "float16" or not weight.nonzero:
        return island
    reached = twins.get((step, module, "grad_output"))
    arrives = reached is not None and (reached.energy_lost or 0.0) < NEGLIGIBLE and reached.nonzero
    place = max(r.seq for r in rows if r.role == "activation" and r.module == module)
    half_after = any(
        r.role == "activation" and r.seq > place and r.grad_enabled and r.dtype in HALF_DTYPES for r in rows
    )
    lost = weight.energy_lost or 0.0
    if lost <= island.energy_lost or (half_after and not arrives):
        return island
    share = weight.underflowed / weight.nonzero
    return replace(island, flushed=share, energy_lost=lost, by_twin=True)


def _of_step(backward: CallRow, rows: list[TensorRow]) -> Iterator[Island]:
    forward = [r for r in rows if r.role == "activation" and r.grad_enabled]
    largest = max((r.absmax for r in forward), default=0.0)
    if any(r.nonfinite for r in forward):
        return  # the forward pass is at fault
    own = [r for r in forward if r.slot.startswith("out")]
    wide = dict.fromkeys(r.module for r in own if r.autocast is None and r.dtype == "float32")
    narrow = {r.module for r in own} - wide.keys()
    for module in wide:
        reached = [r for r in rows if r.role == "grad_output" and r.module == module and r.slot.startswith("out")]
        weights = [r for r in rows if r.role == "weight_grad" and r.module == module and len(r.shape) > 1]
        if module in narrow or not weights or not reached or any(r.nonfinite for r in reached):
            continue
        cast = any((r.role, r.module, r.slot, r.cast_to) == ("grad_output", module, "cast", FP16.dtype) for r in rows)
        yield replace(_island(backward, module, reached, weights, largest), cast_seen=cast)


def _island(
    backward: CallRow, module: str, reached: list[TensorRow], weights: list[TensorRow], largest: float
) -> Island:  # fmt: skip
    gradient = max(r.absmax for r in reached)
    # A sum of products of the gradient and the inputs has at most as many terms as the gradient has elements.
    bound = gradient * max(largest, 1.0) * sum(r.numel for r in reached)
    bad = next((r for r in weights if r.nonfinite), None)
    flushed = flushed_by_cast(merge(histogram_of(r) for r in reached), FP16)
    to_fp16 = backward.autocast == "float16"
    return Island(
        backward,
        module,
        gradient,
        bad or weights[0],
        overflowed=bad is not None and to_fp16 and bound < FP32.max,
        flushed=flushed.share if to_fp16 else 0.0,
        energy_lost=flushed.energy_share if to_fp16 else 0.0,
    )
