"""The exponent histogram that a row of `tensors` holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.histogram import ExponentHistogram

if TYPE_CHECKING:
    from ampdoctor.trace.schema import TensorRow


def histogram_of(row: TensorRow) -> ExponentHistogram:
    """Return the exponent histogram that `row` holds."""
    finite = row.numel - row.nonfinite
    return ExponentHistogram(
        lowest=row.exp_lowest,
        counts=np.asarray(row.exp_counts, dtype=np.int64),
        zeros=row.zeros,
        nan=row.nan,
        posinf=row.posinf,
        neginf=row.neginf,
        absmax=row.absmax,
        sum_squares=row.rms * row.rms * finite,
    )
