"""What the numbers are called by which runs are compared, and how each comes about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words


def metric_name(key: str, words: Words) -> tuple[str, str]:
    """Return the name of a metric with its unit, and an explanation."""
    if key.startswith("memory:"):
        return _memory(key.removeprefix("memory:"), words)
    return {
        "loss": (words("final loss"), words("Mean of the last losses: the last tenth of them, 10 at most.")),
        "loss_common": (
            words("loss at the last common step"),
            words("Mean of the last losses up to the last step that all the runs have."),
        ),
        "nonfinite": (
            words("tensors with NaN or infinity [%]"),
            words("Of all tensors recorded on examined steps, those with an element that is not finite."),
        ),
        "skipped": (words("skipped steps [%]"), words("Steps on which no optimizer changed the weights.")),
        "zeros": (
            words("zero [%] of the weight gradients"),
            words("Elements equal to zero, of any cause, over all examined steps."),
        ),
        "subnormal": (
            words("subnormal [%] of the weight gradients"),
            words("Nonzero elements below the dtype's smallest normal number: they have lost bits."),
        ),
        "flushed": (
            words("flushed [%] of the gradient"),
            words("Elements that are zero in the run and not in its FP32 twin, on the last twin step."),
        ),
        "cosine": (
            words("cosine of the gradient to FP32"),
            words("Direction of the gradient beside that of the FP32 twin on the last twin step; 1 is the same."),
        ),
        "lowest_scale": (words("lowest loss scale"), words("The smallest loss scale that was ever in force.")),
        "norm": (
            words("gradient norm, unscaled"),
            words("Median of what clip_grad_norm_ returned, with the loss scale divided out."),
        ),
        "wall_ms": (
            words("step time [ms]"),
            words("Median duration of a step; changes below 5 % are taken for chance."),
        ),
        "steps": (words("steps"), words("Optimizer steps, applied or skipped.")),
        "examined": (words("steps examined"), words("Steps on which tensors were recorded.")),
    }[key]


def _memory(component: str, words: Words) -> tuple[str, str]:
    names = {
        "total": words("all"),
        "weights": words("weights"),
        "master_weights": words("master weights"),
        "gradients": words("gradients"),
        "optimizer": words("optimizer"),
        "activations": words("activations"),
        "autocast_cache": words("autocast cache"),
        "buffers": words("buffers"),
        "temporary": words("temporary"),
        "other": words("other"),
    }
    title = words("peak memory: {component}", component=names.get(component, component))
    return title, words("Bytes at the highest peak of the steps whose memory was recorded.")
