"""What twins measured, in words: the gradient that the run computed beside that of FP32, and where values go first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.materiality import Harm
from ampdoctor.analysis.forward.first_loss import first_lost
from ampdoctor.analysis.twins.measured import cosine_text, flushed_share, measured_steps, wrong_share
from ampdoctor.analysis.wording import counted, percent, place
from ampdoctor.finding import Evidence, Grade, Location

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.materiality import Materiality
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

MATTERS = 0.01
"""Share of its result's energy that an operation flushes before it is told as the first where values are lost."""


def what_measured(told: Materiality) -> str:
    """Return what is lost as a clause: "on step 2, 18.5 % of the whole gradient's elements are flushed to zero, …"."""
    gradient, on = told.own.gradient, f"on step {told.step.step}"
    flushed = f"{on}, {percent(told.own.flushed)} of the whole gradient's elements are flushed to zero"
    if told.harm is Harm.HARMLESS:
        cosine = "" if gradient.cosine is None else f" (cosine {cosine_text(gradient.cosine)})"
        return f"{flushed}, and what is left is the gradient of {told.fp32} all the same{cosine}"
    if told.hurt and (told.own.wrong or 0.0) < (wrong_share(told.hurt[0]) or 0.0) / 2.0:
        worst = told.hurt[0]
        return (
            f"{on}, {len(told.hurt)} of {counted(told.tensors, 'weight gradient')} are not what they are in "
            f"{told.fp32}, {place(worst.site)} loses {percent(flushed_share(worst))} of its elements"
        )
    cosine = "nothing is left" if gradient.cosine is None else f"cosine {cosine_text(gradient.cosine)}"
    return f"{flushed}, and it is not the gradient of {told.fp32} any more ({cosine})"


def measured_evidence(run: Run, told: Materiality) -> list[Evidence]:
    """Return what the twin step says about the run's own gradient, whether it decided or not."""
    return [*_whole(told), *_tensors(told), *_first(run, told), *_others(run, told), *_alone(told)]


def measured_location(told: Materiality) -> Location:
    """Return the weight gradients that are hurt (else those that flush most), on the twin step."""
    most = sorted(told.own.weights, key=lambda r: -flushed_share(r))
    rows = told.hurt or [r for r in most if r.flushed][:5]
    sites = tuple(dict.fromkeys(f"{r.site} ({r.role})" for r in rows))
    return Location(sites, told.step.step, told.step.step)


def _whole(told: Materiality) -> list[Evidence]:
    gradient, step = told.own.gradient, told.step.step
    evidence = [
        _measured(
            "measured_flushed_share",
            told.own.flushed,
            f"Beside its twin in {told.fp32}, step {step} flushes {percent(told.own.flushed)} of the weight gradients' "
            f"elements ({gradient.flushed} of {gradient.nonzero}).",
        )
    ]
    if gradient.cosine is not None:
        text = (
            f"On step {step} the cosine of the whole gradient to that of {told.fp32} is "
            f"{cosine_text(gradient.cosine)}{_by_rounding(told)}."
        )
        evidence.append(Evidence("measured_cosine", gradient.cosine, text, _turned(told)))
    if gradient.norm_ratio is not None:
        text = f"The norm of the whole gradient on step {step} is {gradient.norm_ratio:.4g} times that of {told.fp32}."
        if not gradient.norm_ratio:
            text = f"Nothing is left of the gradient on step {step}: its norm is 0, and that of {told.fp32} is not."
        evidence.append(Evidence("measured_norm_ratio", gradient.norm_ratio, text, _turned(told)))
    if gradient.energy_lost is not None:
        share = percent(gradient.energy_lost)
        text = f"The elements flushed on step {step} held {share} of the gradient's energy (sum of squares)."
        evidence.append(_measured("measured_lost_energy", gradient.energy_lost, text))
    return evidence


def _tensors(told: Materiality) -> list[Evidence]:
    if not told.hurt:
        return []
    worst: TwinRow = told.hurt[0]
    text = (
        f"Weight gradients that are hurt by themselves on step {told.step.step}: {len(told.hurt)} of {told.tensors}, "
        f"most of all {place(worst.site)} with {percent(flushed_share(worst))} flushed."
    )
    return [_measured("hurt_weight_gradients", len(told.hurt), text)]


def _first(run: Run, told: Materiality) -> list[Evidence]:
    step = told.step.step
    origin = first_lost(run, step, "backward", MATTERS)
    if origin is None or told.harm <= Harm.HARMLESS:
        return []
    share = origin.row.energy_lost or 0.0
    text = (
        f"The first operation of step {step} to flush a gradient is {origin.phrase}: {origin.row.flushed} of "
        f"{origin.row.nonzero} elements, {percent(share)} of the energy of its result."
    )
    return [_measured("first_lost_energy", share, text)]


def _others(run: Run, told: Materiality) -> list[Evidence]:
    """Return what earlier twin steps had said, where there are any."""
    before = [s for s in measured_steps(run) if s.run is not None and s.step < told.step.step]
    if not before or before[-1].run is None:
        return []
    last = before[-1].run
    text = f"On step {before[-1].step} a twin had measured: {last.phrase}."
    return [_measured("measured_flushed_share_before", last.flushed, text)]


def _alone(told: Materiality) -> list[Evidence]:
    """Return how little is known of other steps, where all rests on one early one."""
    if not told.alone:
        return []
    text = (
        f"All this is of step {told.step.step}, when training had hardly begun: no other step was measured and says "
        "the same, nor do the gradients recorded later."
    )
    return [Evidence("only_step_measured", told.step.step, text)]


def _by_rounding(told: Materiality) -> str:
    return "; TF32 rounds as coarsely as FP16, and part of that is its own" if _unsure(told) else ""


def _turned(told: Materiality) -> Grade:
    """Return how well it is known how far the gradient is turned."""
    return Grade.ESTIMATED if _unsure(told) else Grade.MEASURED


def _unsure(told: Materiality) -> bool:
    """Whether the gradient is turned by rounding, as far as it is, and what it was compared with is rounded too."""
    return told.rounded and told.fp32 != "FP32"


def _measured(name: str, value: float, text: str) -> Evidence:
    return Evidence(name, value, text, Grade.MEASURED)
