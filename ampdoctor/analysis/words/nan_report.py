"""A run that broke for other reasons than its precision, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.twins.measured import latest
from ampdoctor.analysis.twins.shared_with_fp32 import without_half
from ampdoctor.analysis.twins.twin_numbers import cosine_text
from ampdoctor.analysis.wording import number
from ampdoctor.analysis.words.origin_report import twin_evidence
from ampdoctor.finding import Evidence, Grade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.divergence import Divergence
    from ampdoctor.analysis.forward.passes import ForwardStep
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

STRAIGHT = 0.9
"""Cosine (26 degrees) from which on a gradient points where that of FP32 does."""


def place_of(module: str) -> str:
    """Return a module as it is set in text, the root as "the model"."""
    return f"`{module}`" if module else "the model"


def as_in_fp32(run: Run, found: Divergence) -> str:
    """Return what is known of FP32 about a run that ran away, as the end of a sentence."""
    if without_half(run):
        return ", and the run is FP32 throughout"
    if found.in_fp32 is not None:
        return ", in FP32 as much as here"
    return "; whether FP32 runs away as well was not measured"


def input_evidence(found: Sequence[tuple[ForwardStep, TensorRow]]) -> list[Evidence]:
    """Return what was seen of the data that is not finite."""
    birth = found[0][1]
    named = ", ".join(str(step.row.step) for step, _ in found)
    where = place_of(birth.module)
    return [
        Evidence(
            "nonfinite_inputs", birth.nonfinite,
            f"On step {birth.step}, {birth.nonfinite} of {birth.numel} values handed to {where} are NaN or infinite "
            f"({birth.dtype}); the weights are finite.",
        ),
        Evidence("steps_seen", len(found), f"So it was on every examined step that failed for it: {named}."),
    ]  # fmt: skip


def divergence_evidence(run: Run, found: Divergence) -> list[Evidence]:
    """Return how the run ran away, and that its gradients were right while it did."""
    evidence = []
    if found.start is not None and found.peak is not None:
        whose = f"In {fp32_name(run)} the" if found.in_fp32 is not None else "The"
        grade = Grade.OBSERVED if found.in_fp32 is None else Grade.MEASURED
        text = (
            f"{whose} loss had reached {number(found.peak / found.start)} times its start, {number(found.start)}, when "
            f"step {found.broke} was the first to fail for good."
        )
        evidence.append(Evidence("loss_growth", found.peak / found.start, text, grade))
    if found.update is not None:
        text = f"The largest update seen until then was {number(found.update)} times the norm of the weights."
        evidence.append(Evidence("update_over_weights", found.update, text))
    lr = next((s.lr for s in run.steps if s.step == found.began and s.lr), None)
    if lr is not None:
        evidence.append(Evidence("learning_rate", lr, f"The learning rate was {lr:g} on step {found.began}."))
    right = latest(run)
    own = right.run if right is not None else None
    cosine = own.gradient.cosine if own is not None else None
    if right is not None and cosine is not None and cosine > STRAIGHT:
        text = (
            f"On step {right.step} the cosine of the gradient to that of {fp32_name(run)} is {cosine_text(cosine)}: it "
            "was right."
        )
        evidence.append(Evidence("cosine_to_fp32", cosine, text, Grade.MEASURED))
    return [*evidence, *twin_evidence(run, found.in_fp32 if found.in_fp32 is not None else found.broke)]
