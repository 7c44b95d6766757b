"""What counts as harm where gradients vanish: the thresholds that the rules about it share, each with its source."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _limit(value: float, source: str) -> Any:
    return field(default=value, metadata={"source": source})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What counts as harm.

    Attributes:
        lost_energy: share of a gradient's energy; a site that loses more is hurt.
        modules_warning: share of the modules that must be hurt for a fault.
        modules_error: share of the modules from which on the run as a whole is harmed.
        lasting_share: a fault lasts where it is there on at least this share of the later half of the examined steps.
        converged: share of its start below which the loss has nothing left to learn.
        cosine_harmless: cosine of the measured gradient to FP32's from which on flushing is harmless.
        norm_harmless: how far its norm may be from FP32's for that.
        wrong_warning: energy of its difference to FP32's, as a share of that one's, from which on it is hurt.
        wrong_error: the same, from which on the run as a whole is harmed.
    """

    lost_energy: float = _limit(
        0.05, "a gradient without 5 % of its energy is turned by 13 degrees (cosine sqrt(0.95) = 0.975)"
    )
    modules_warning: float = _limit(
        0.1, "a tenth of the modules: one odd gradient in a deep model is no fault of the run"
    )
    modules_error: float = _limit(
        0.5, "more modules are hurt than are not, so it is the run that is hurt and not a part of it"
    )
    lasting_share: float = _limit(0.5, "on more steps than not, over the later half: the first steps may be special")
    converged: float = _limit(0.01, "99 % of the way to nothing is done, and what is lost of the rest harms nobody")
    cosine_harmless: float = _limit(
        0.999,
        "2.6 degrees (0.4 % flushed at 0.9997 is no fault); the rounding of BF16, which trains as FP32 does, turned "
        "the gradients of models of 2 to 16 layers by up to 0.6 degrees (0.99995)",
    )
    norm_harmless: float = _limit(0.01, "as if on a learning rate 1 % off")
    wrong_warning: float = _limit(
        0.02, "a cosine of 0.99, 8 degrees: more than ten times what FP16's and BF16's rounding did to any model tried"
    )
    wrong_error: float = _limit(
        0.2, "a cosine of 0.89, 27 degrees: where flushing did it, a fifth of the descent is gone"
    )


LIMITS: dict[str, tuple[float, str]] = {f.name: (getattr(Limits, f.name), f.metadata["source"]) for f in fields(Limits)}
"""The fields of `Limits` with where they come from, as thresholds of the rules."""
