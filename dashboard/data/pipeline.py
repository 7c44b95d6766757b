"""What is known of one step at each station of the pipeline, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log2
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.analysis.calls.scaling import ScalingKind, loss_scaling
from ampdoctor.analysis.twins.opinions import op_rows, twin_rows
from ampdoctor.formats import HALF_DTYPES
from ampdoctor.trace.rows import as_rows
from ampdoctor.trace.schema import TimingRow
from ampdoctor_dashboard.data.call_order import calls_of
from ampdoctor_dashboard.data.op_classes import Ran, ran_in
from ampdoctor_dashboard.data.step_run import nearest, run_of_step, steps_of_table

if TYPE_CHECKING:
    from ampdoctor.finding import Finding
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, ScalerRow, StepRow, TwinRow
    from ampdoctor_dashboard.data.opened import OpenedRun


@dataclass(frozen=True)
class Values:
    """All recorded tensors of one role and dtype on a step, taken together.

    Attributes:
        dtype: their torch dtype.
        lowest: exponent of the smallest nonzero magnitude; None where all are zero.
        highest: exponent of the largest finite magnitude.
        tensors: how many.
        elements: of all of them.
        zeros: elements equal to zero.
        subnormal: elements below the dtype's smallest normal number.
        nonfinite: elements that are NaN or infinite.
        scale: loss scale that multiplies them; None for none.
    """

    dtype: str
    lowest: int | None
    highest: int | None
    tensors: int
    elements: int
    zeros: int
    subnormal: int
    nonfinite: int
    scale: float | None


@dataclass(frozen=True)
class Tally:
    """So many of so many elements."""

    some: int
    all: int

    @property
    def share(self) -> float:
        """Their share."""
        return self.some / self.all if self.all else 0.0


@dataclass(frozen=True)
class StepFacts:
    """What was recorded of one step, station by station.

    Attributes:
        step: the step.
        row: its row in the table `steps`; None where it has none yet.
        values: by role, half dtypes first, as far as tensors were recorded on this step.
        ran: which operations ran in which dtype in the forward pass; empty where none was recorded.
        ran_on: the step on which that was seen.
        calls: the calls that make up the step.
        autocast: dtypes of the autocast blocks, or those seen in force; empty where autocast was off.
        events: what the scaler did on this step.
        scaling: by which means the run scales its loss.
        scale: the loss scale in force; None without one.
        weights: dtypes of the trained weights.
        optimizers: classes of the optimizers.
        casts: elements that casts to half flush, of those nonzero (local twins); None where not measured.
        gradient: what a twin measured of the whole gradient in the run's own setting; None without one.
        loss_fp32: loss of the FP32 twin; None without one.
        stuck: elements of weights that an update should have moved and that kept their value; None where not recorded.
    """

    step: int
    row: StepRow | None
    values: dict[str, tuple[Values, ...]]
    ran: tuple[Ran, ...]
    ran_on: int | None
    calls: tuple[CallRow, ...]
    autocast: tuple[str, ...]
    events: tuple[ScalerRow, ...]
    scaling: ScalingKind
    scale: float | None
    weights: tuple[str, ...]
    optimizers: tuple[str, ...]
    casts: Tally | None
    gradient: TwinRow | None
    loss_fp32: float | None
    stuck: Tally | None

    @property
    def half(self) -> str | None:
        """The half dtype that the step computes in; None for a step in FP32."""
        seen = [*self.autocast, *(v.dtype for values in self.values.values() for v in values), *self.weights]
        return next((dtype for dtype in seen if dtype in HALF_DTYPES), None)

    def of(self, role: str) -> tuple[Values, ...]:
        """Return the tensors of a role, by dtype; nothing where none was recorded."""
        return self.values.get(role, ())

    def nonfinite(self, role: str) -> int:
        """Return how many elements of a role are NaN or infinite."""
        return sum(values.nonfinite for values in self.of(role))

    def zero_share(self, role: str) -> float | None:
        """Return the share of a role's elements that are zero, of any cause; None where none was recorded."""
        elements = sum(values.elements for values in self.of(role))
        return sum(values.zeros for values in self.of(role)) / elements if elements else None

    def event(self, *names: str) -> ScalerRow | None:
        """Return the last of the scaler's events that is called so."""
        return next((event for event in reversed(self.events) if event.event in names), None)

    def call(self, *names: str) -> CallRow | None:
        """Return the last of the calls that is called so."""
        return next((call for call in reversed(self.calls) if call.call in names), None)


def default_step(opened: OpenedRun, found: tuple[Finding, ...]) -> int | None:
    """Return the step of the worst finding, or else the last examined; None where no step was recorded."""
    examined = opened.steps.examined.tolist()
    first = next((f.location.first_step for f in found if f.location.first_step is not None), None)
    if first is not None and examined:
        return nearest([s for s in examined if s >= first] or examined, first)
    return nearest(steps_shown(opened), None)


def steps_shown(opened: OpenedRun) -> list[int]:
    """Return the steps that were examined; where none was, those that something else is known of."""
    examined: list[int] = opened.steps.examined.tolist()
    if examined:
        return examined
    recorded: list[int] = opened.steps.step.tolist()
    return recorded or sorted({*steps_of_table(opened, "calls"), *steps_of_table(opened, "scaler")})


def step_facts(opened: OpenedRun, step: int) -> StepFacts:
    """Return what was recorded of `step`."""
    run, whole = run_of_step(opened, step), run_of_step(opened, None)
    tensors = run.table("tensors")
    calls = [call for call in run.calls if call.step == step]
    row = next((row for row in run.steps if row.step == step), None)
    scaling = loss_scaling(run)
    by_hand = scaling.last if scaling.kind is ScalingKind.HAND_WRITTEN else None
    ran, ran_on = _ran(opened, whole, step)
    return StepFacts(
        step, row, values_by_role(tensors), ran, ran_on, tuple(calls_of(calls)), _autocast(calls, tensors),
        tuple(sorted((e for e in run.scaler if e.step == step), key=lambda e: e.seq)),
        scaling.kind, row.loss_scale if row and row.loss_scale else by_hand,
        _weights(run), tuple(dict.fromkeys(o.type.rpartition(".")[2] for o in run.optimizers)),
        _casts(whole, step), _twin(whole, step, "run", "gradient"), _loss_in_fp32(whole, step), _stuck(tensors),
    )  # fmt: skip


def values_by_role(table: pa.Table) -> dict[str, tuple[Values, ...]]:
    """Return the tensors of one step, those of each role and dtype taken together."""
    kinds = table.select(["role", "dtype"]).group_by(["role", "dtype"]).aggregate([]).to_pylist()
    found: dict[str, list[Values]] = {}
    for kind in sorted(kinds, key=lambda kind: (kind["dtype"] not in HALF_DTYPES, kind["dtype"])):
        same = pc.and_(pc.equal(table["role"], kind["role"]), pc.equal(table["dtype"], kind["dtype"]))
        found.setdefault(kind["role"], []).append(_values(kind["dtype"], table.filter(same)))
    return {role: tuple(values) for role, values in found.items()}


def _values(dtype: str, table: pa.Table) -> Values:
    nonzero = table.filter(pc.greater(pc.list_value_length(table["exp_counts"]), 0))
    largest = pc.max(table["absmax"]).as_py() or 0.0
    scales = table["loss_scale"].drop_null()

    def total(*names: str) -> int:
        return sum(pc.sum(table[name]).as_py() or 0 for name in names)

    return Values(
        dtype, pc.min(nonzero["exp_lowest"]).as_py(), floor(log2(largest)) if 0.0 < largest < inf else None,
        table.num_rows, total("numel"), total("zeros"), total("subnormal"), total("nan", "posinf", "neginf"),
        scales[0].as_py() if len(scales) else None,
    )  # fmt: skip


def _ran(opened: OpenedRun, whole: Run, step: int) -> tuple[tuple[Ran, ...], int | None]:
    """Return the operations of the step whose ledger is nearest; without any, those of the nearest local twin."""
    near = nearest(steps_of_table(opened, "timings"), step)
    if near is not None:
        table = opened.table("timings")
        rows: list[TimingRow] = as_rows(table.filter(pc.equal(table["step"], near)), TimingRow)
        if found := ran_in(rows):
            return tuple(found), near
    ops = op_rows(whole)
    near = nearest(sorted({row.step for row in ops}), step)
    return tuple(ran_in(row for row in ops if row.step == near)), near


def _autocast(calls: list[CallRow], tensors: pa.Table) -> tuple[str, ...]:
    blocks = [call.dtype for call in calls if call.call == "autocast_enter" and call.asked and call.dtype]
    return tuple(dict.fromkeys([*tensors["autocast"].drop_null().unique().to_pylist(), *blocks]))


def _weights(run: Run) -> tuple[str, ...]:
    trained = [dtype for group in run.optimizers for dtype in group.dtypes]
    return tuple(dict.fromkeys(trained or [d for m in run.modules if m.trainable for d in m.dtypes]))


def _casts(whole: Run, step: int) -> Tally | None:
    rows = [
        row for row in op_rows(whole)
        if row.step == step and row.op.startswith("aten._to_copy") and row.direction == "forward"
        and HALF_DTYPES & set(row.dtype_out.split(","))
    ]  # fmt: skip
    return Tally(sum(row.flushed for row in rows), sum(row.nonzero for row in rows)) if rows else None


def _twin(whole: Run, step: int, counterfactual: str, role: str) -> TwinRow | None:
    rows = (r for r in twin_rows(whole) if r.step == step and r.counterfactual == counterfactual and r.role == role)
    return next((row for row in rows if row.micro_batch is None), None)


def _loss_in_fp32(whole: Run, step: int) -> float | None:
    rows = [r for r in twin_rows(whole) if r.step == step and r.counterfactual == "fp32" and r.role == "loss"]
    known = [row.value for row in rows if row.value is not None]
    return sum(known) if known else None


def _stuck(tensors: pa.Table) -> Tally | None:
    rows = tensors.filter(pc.is_valid(tensors["expected_to_move"]))
    if not rows.num_rows:
        return None
    return Tally(pc.sum(rows["unchanged"]).as_py() or 0, pc.sum(rows["expected_to_move"]).as_py() or 0)
