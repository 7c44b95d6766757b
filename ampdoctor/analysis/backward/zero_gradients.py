"""Gradients that are zero in every element, step by step: whose they are, and what was above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.opinions import twin_rows

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

Site = tuple[str, str]
"""Module, slot."""

ENOUGH = 3
"""Examined steps that must agree: on the first, zero-initialised branches let nothing through, and on the second
little."""


@dataclass(frozen=True)
class Flow:
    """What went through the model on one examined step.

    Attributes:
        step: the step.
        activations: in order, those that gradients pass through.
        outputs: gradients of outputs, by site.
        weights: parameters, by site.
        gradients: their gradients, by site; those that have none are missing.
    """

    step: int
    activations: tuple[TensorRow, ...]
    outputs: dict[Site, TensorRow]
    weights: dict[Site, TensorRow]
    gradients: dict[Site, TensorRow]

    def arrives(self, module: str) -> bool:
        """Whether a gradient that is not zero arrives at an output of `module`."""
        return any(m == module and not all_zero(r) for (m, _), r in self.outputs.items())

    @property
    def finite(self) -> bool:
        """Whether every gradient of a parameter is."""
        return not any(r.nonfinite for r in self.gradients.values())

    @property
    def starved(self) -> list[TensorRow]:
        """The gradients of parameters that are zero in every element."""
        return [r for r in self.gradients.values() if all_zero(r)]


def all_zero(row: TensorRow) -> bool:
    """Whether a tensor has elements, and all of them are zero."""
    return row.numel > 0 and row.zeros == row.numel


@once_per_run
def flows(run: Run) -> tuple[Flow, ...]:
    """Return what went through the model on each examined step that has gradients of parameters, in order.

    Steps with a gradient that is not finite are left out: zero times infinity is not zero.
    """
    by_step: dict[int, list[TensorRow]] = {}
    for row in run.tensors("activation", "grad_output", "weight", "weight_grad"):
        by_step.setdefault(row.step, []).append(row)
    found = (_flow(step, rows) for step, rows in sorted(by_step.items()))
    return tuple(flow for flow in found if flow.gradients and flow.finite)


def _flow(step: int, rows: list[TensorRow]) -> Flow:
    outputs: dict[Site, TensorRow] = {}
    for row in rows:
        if row.role == "grad_output" and not row.slot.startswith("cast"):
            # Of several calls or micro-batches one that is not zero speaks for all.
            held = outputs.get((row.module, row.slot))
            if held is None or all_zero(held):
                outputs[row.module, row.slot] = row
    return Flow(
        step,
        tuple(sorted((r for r in rows if r.role == "activation" and r.grad_enabled), key=lambda r: r.seq)),
        outputs,
        {(r.module, r.slot): r for r in rows if r.role == "weight"},
        {(r.module, r.slot): r for r in rows if r.role == "weight_grad"},
    )


@once_per_run
def nonzero_in_fp32(run: Run) -> frozenset[tuple[str, str, str]]:
    """Return role, module and slot of what an FP32 twin found not to be zero in every element, on any step."""
    return frozenset((r.role, r.module, r.slot) for r in twin_rows(run) if r.nonzero)


@once_per_run
def compared_with_fp32(run: Run) -> frozenset[tuple[str, str, str]]:
    """Return role, module and slot of what was compared with an FP32 twin, on any step."""
    return frozenset((r.role, r.module, r.slot) for r in twin_rows(run))
