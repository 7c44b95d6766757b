"""Colours, light and dark. Series go by Okabe and Ito (2008), which colour-blind people can tell apart."""

from __future__ import annotations

from dataclasses import dataclass

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
)  # fmt: skip

SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW)
"""Colours of lines, in the order in which they are given out."""

CATEGORY = {"fp32": BLUE, "bf16": GREEN, "fp16": VERMILION, "e4m3fn": PINK, "e5m2": ORANGE, "tf32": SKY, "fp64": BLUE}
"""The colour of each number format, everywhere the same."""


@dataclass(frozen=True)
class Theme:
    """The colours that depend on the ground.

    Attributes:
        name: light or dark.
        ground: behind a figure.
        ink: text and axes.
        faint: text of less weight; still 4.5 to 1 against the ground.
        grid: lines behind the data.
        bad: what is wrong.
        warn: what is going wrong.
        good: what is right.
    """

    name: str
    ground: str
    ink: str
    faint: str
    grid: str
    bad: str
    warn: str
    good: str


LIGHT = Theme("light", "#ffffff", "#1b1f24", "#57606a", "#e4e8ec", "#b42318", "#8a5a00", "#0b6e4f")
DARK = Theme("dark", "#16191d", "#e6e9ec", "#9aa4af", "#2c3238", "#ff8a7a", "#f2b84b", "#5fd1a5")


def theme_of(name: str | None) -> Theme:
    """Return the theme of that name; the light one where it is unknown."""
    return DARK if name == "dark" else LIGHT
