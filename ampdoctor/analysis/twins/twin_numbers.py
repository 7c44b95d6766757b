"""Numbers of one row of a twin: what share is flushed, and how much of the energy is wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.trace.schema import TwinRow


def flushed_share(row: TwinRow) -> float:
    """Return the share of the elements nonzero in FP32 that are zero in `row`."""
    return row.flushed / row.nonzero if row.nonzero else 0.0


def wrong_share(row: TwinRow) -> float | None:
    """Return |g - g32|² / |g32|²: what is missing or wrong of a tensor, as a share of its FP32 energy.

    Where elements are only flushed this is the energy lost; what they spoil on their way down is in it too. None where
    a side is not finite, or nothing was there in FP32.
    """
    if row.nonfinite or row.nonfinite_fp32 or row.norm_ratio is None:
        return None
    if row.cosine is None:
        return 1.0 if row.norm_ratio == 0.0 else None
    return max(0.0, 1.0 - 2.0 * row.norm_ratio * row.cosine + row.norm_ratio**2)


def cosine_text(cosine: float) -> str:
    """Return a cosine in as many digits as tell it from 1: `0.71`, `0.9997`, `1`."""
    if cosine == 1.0:
        return "1"
    away = max(1.0 - abs(cosine), 1e-7)
    digits = 2 if away >= 0.01 else min(6, -math.floor(math.log10(away)))
    text = f"{cosine:.{digits}f}".rstrip("0")
    return "> 0.999999" if text == "1." else text
