"""What the metrics of the heatmap and the roles of tensors are called, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words


def metric_words(words: Words) -> dict[str, tuple[str, str]]:
    """Return the title and the explanation of each metric."""
    return {
        "flushed": (
            words("flushed share, estimated"),
            words(
                "Elements that the format made zero, of those that were not zero before: the part of the distribution "
                "below the format's edge, modelled from what is left above it; known where the values before a cast "
                "were recorded. Zeros of other causes are not counted."
            ),
        ),
        "flushed_measured": (
            words("flushed share, measured"),
            words(
                "Elements that are zero in the run, not zero in the FP32 twin of the same step, and too small for the "
                "run's format. Known on the steps that were twinned."
            ),
        ),
        "zeros": (
            words("zeros"),
            words("Elements equal to zero, of all; says nothing about why: ReLU, dropout and padding make zeros too."),
        ),
        "subnormal": (
            words("subnormal share"),
            words(
                "Elements below the smallest normal number of their dtype, of all: they lose bits before they flush."
            ),
        ),
        "headroom": (
            words("headroom to overflow [binades]"),
            words("Doublings of the largest element that the format still holds. Below 0 it overflows."),
        ),
        "above_flush": (
            words("largest element above the underflow edge [binades]"),
            words("Halvings of the largest element until even it is the smallest number that the format holds."),
        ),
        "rms": (
            words("root mean square [log2]"),
            words("Power of two of the root mean square of the finite elements, as held: times the loss scale."),
        ),
        "nonfinite": (words("nonfinite share"), words("Elements that are NaN or infinite, of all.")),
        "cosine": (
            words("cosine to FP32, measured"),
            words("How far the run turned the tensor: the cosine to its FP32 twin, 1 where it points the same way."),
        ),
    }


def role_words(words: Words) -> dict[str, str]:
    """Return what each role is called."""
    return {
        "weight_grad": words("gradients of weights"),
        "grad_output": words("gradients of outputs"),
        "activation": words("activations"),
        "weight": words("weights"),
        "update": words("updates"),
        "optimizer_state": words("optimizer states"),
        "buffer": words("buffers"),
    }
