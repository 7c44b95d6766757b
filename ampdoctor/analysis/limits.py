"""What counts as harm where gradients vanish: the thresholds that the rules about it share."""

from __future__ import annotations

from dataclasses import dataclass

LIMITS = {
    "lost_energy": (
        0.05,
        "a gradient without 5 % of its energy is turned by 13 degrees (cosine sqrt(0.95) = 0.975)",
    ),
    "modules_warning": (
        0.1,
        "a tenth of the modules: one odd gradient in a deep model is no fault of the run",
    ),
    "modules_error": (
        0.5,
        "a small BERT with 35 % of its modules hurt learned at 0.8 of its speed, with 55 % at half",
    ),
}
"""Values of `Limits` with where they come from, as thresholds of the rules."""


@dataclass(frozen=True)
class Limits:
    """What counts as harm.

    Attributes:
        lost: share of a gradient's energy; a site that loses more is hurt.
        few: share of the modules that must be hurt for a fault.
        many: share of the modules from which on the run as a whole is harmed.
    """

    lost: float
    few: float
    many: float
