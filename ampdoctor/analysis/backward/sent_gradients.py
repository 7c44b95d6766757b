"""Gradients that are sent to other ranks in half: what that takes from them, measured or read from what arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.forward.roundings import roundings
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import FP16, HALF_DTYPES
from ampdoctor.trace.histograms import histogram_of
from ampdoctor.underflow import estimate_flushed

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, RoundingRow, TensorRow


@dataclass(frozen=True)
class Sent:
    """The gradients of one step, as they were sent in FP16.

    Attributes:
        step: the step.
        numel: their elements.
        nonzero: those that were not zero before; of what is estimated, so many there must have been.
        flushed: those that are zero after it.
        energy: share of the sum of squares that lies in them; estimated, of each weight's, on average.
        beyond: elements that became infinite; none where a scaler found that and skipped the step, as it is meant to.
        largest: largest magnitude before; None where that was not seen.
        sites: weights of which nothing is left.
        measured: each element was compared; else it is read from what arrived.
    """

    step: int
    numel: int
    nonzero: float
    flushed: float
    energy: float
    beyond: int
    largest: float | None
    sites: tuple[str, ...]
    measured: bool

    @property
    def share(self) -> float:
        """Flushed share of what was not zero."""
        return self.flushed / self.nonzero if self.nonzero else 0.0


def comm_hook(run: Run) -> CallRow | None:
    """Return the call that registered a communication hook."""
    return next((c for c in calls_named(run, "comm_hook") if c.error is None), None)


@once_per_run
def sent_in_fp16(run: Run) -> tuple[Sent, ...]:
    """Return what was sent in FP16, step by step; where nobody could look, what torch's own FP16 hook has left."""
    rows = [r for r in roundings(run).get("sent", ()) if r.dtype_out == "float16"]
    if rows:
        steps = sorted({r.step for r in rows})
        return tuple(_measured(run, [r for r in rows if r.step == s], s) for s in steps)
    hook = comm_hook(run)
    if hook is None or "fp16_compress" not in (hook.target or ""):
        return ()
    steps = sorted({r.step for r in run.tensors("weight_grad")})
    return tuple(found for step in steps if (found := _estimated(run, step)) is not None)


def _measured(run: Run, found: list[RoundingRow], step: int) -> Sent:
    numel = sum(r.numel for r in found)
    beyond = 0 if step in _skipped(run) else sum(r.beyond or 0 for r in found)
    return Sent(
        step, numel, sum(r.nonzero or 0 for r in found), sum(r.flushed or 0 for r in found),
        _energy(found), beyond,
        max((r.largest or 0.0 for r in found), default=0.0), _empty(run, step), measured=True,
    )  # fmt: skip


def _energy(found: list[RoundingRow]) -> float:
    """Return the flushed share of all squares; of rows that do not tell theirs, the least that it can be."""
    shares = [r.energy_flushed or 0.0 for r in found]
    squares = [r.rms**2 * r.numel for r in found if r.rms is not None]
    if len(squares) < len(found):
        return min(shares)
    total = sum(squares)
    return sum(e * s for e, s in zip(shares, squares, strict=True)) / total if total else 0.0


def _skipped(run: Run) -> set[int]:
    return {row.step for row in run.scaler if row.found_inf}


def _estimated(run: Run, step: int) -> Sent | None:
    rows = [r for r in run.tensors("weight_grad", dtypes=["float32"]) if r.step == step]
    if not rows:
        return None
    empty, nonzero, flushed, energies = _empty(run, step), 0.0, 0.0, []
    for row in rows:
        estimate = estimate_flushed(histogram_of(row), FP16)
        lost = float(row.zeros) if estimate is None and row.site in empty else 0.0
        lost = estimate.flushed if estimate is not None else lost
        share = estimate.energy_share if estimate is not None else 1.0
        nonzero += lost + row.numel - row.zeros
        flushed += lost
        energies.append(share if lost else 0.0)
    numel = sum(r.numel for r in rows)
    beyond = 0 if step in _skipped(run) else sum(r.nonfinite for r in rows)
    energy = sum(energies) / len(energies)
    return Sent(step, numel, nonzero, flushed, energy, beyond, None, empty, measured=False)


def _empty(run: Run, step: int) -> tuple[str, ...]:
    """Return the weights whose FP32 gradient is all zero although gradients reach the output of their module."""
    reached = {
        r.module
        for r in run.tensors("grad_output")
        if r.step == step and r.zeros < r.numel and r.dtype not in HALF_DTYPES
    }
    rows: list[TensorRow] = run.tensors("weight_grad", dtypes=["float32"])
    return tuple(r.site for r in rows if r.step == step and r.zeros == r.numel and r.module in reached)
