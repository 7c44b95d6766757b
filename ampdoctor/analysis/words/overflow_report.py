"""An activation or a gradient that overflows, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.forward_reach import peak_before
from ampdoctor.analysis.forward.passes import forward_steps
from ampdoctor.analysis.wording import counted, number, place
from ampdoctor.finding import Evidence

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.analysis.forward.passes import ForwardStep
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


def where_born(birth: TensorRow, step: ForwardStep) -> str:
    """Return where a nonfinite activation was born: "in `down`", "between `up` and `down`"."""
    if birth.slot.startswith("out"):
        return f"in `{birth.module or 'the model'}`"
    before = step.activations[-1].module if step.activations else ""
    return f"between `{before}` and `{birth.module}`" if before else f"on the way into `{birth.module}`"


def birth_evidence(run: Run, step: ForwardStep, birth: TensorRow, steps: int) -> list[Evidence]:
    """Return what was seen of the activation that is the first not to be finite, and of what comes before it."""
    peak, largest = peak_before(run, birth), step.largest_half
    first, examined = birth.step, counted(len(forward_steps(run)), "step")
    evidence = [
        Evidence(
            "nonfinite_elements", birth.nonfinite,
            f"On step {first}, {birth.nonfinite} of {birth.numel} elements of `{birth.site}` (FP16) are infinite or "
            "NaN: the first in the forward pass.",
        ),
        Evidence("steps_affected", steps, f"So it is on {steps} of {examined} examined."),
    ]  # fmt: skip
    if peak:
        text = f"The largest finite value seen there is {number(peak)}; FP16 ends at 65504."
        evidence.insert(1, Evidence("largest_finite", peak, text))
    if largest is not None:
        text = f"What comes before it is finite: at most {number(largest.absmax)}, in `{largest.site}`."
        evidence.insert(1, Evidence("largest_before", largest.absmax, text))
    return evidence


def where_made(origin: Origin) -> str:
    """Return where an operation is: "in `down`", else by its line."""
    if origin.row.module:
        return f"in `{origin.row.module}`"
    return f"in `{origin.row.op}` outside any module"


def gradient_evidence(site: GradientSite) -> Evidence:
    """Return what was seen of a gradient that overflows, or comes near to it."""
    count = site.histogram.nonfinite
    if count:
        text = f"{count} of {site.histogram.numel} elements of the gradient at {place(site.name)} are infinite or NaN."
        return Evidence("nonfinite_elements", count, f"{text} It is the first in the backward pass.")
    peak = site.histogram.absmax
    return Evidence("largest_gradient", peak, f"The gradient at {place(site.name)} reaches {number(peak)}.")
