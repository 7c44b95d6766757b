"""Whether weight gradients were recorded after the user's own code had divided the loss scale out of them.

A scaler's division is seen and comes after the recording. A division in code (`p.grad.div_(SCALE)`) is not seen: that
it was done shows in the size of the gradients, which is off by the whole scale.
"""

from __future__ import annotations

from math import log2, sqrt
from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.trace.histograms import histogram_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

BY_SCALER = frozenset({"unscale", "scaler_step"})


def divided_by_hand(run: Run, step: int, scale: float) -> bool:
    """Return whether `step`, at the loss scale `scale`, has its weight gradients without the scale.

    The gradient of a bias is that of the output, added up over positions; that of a matrix has the input in it as well,
    which makes it some binades larger or smaller. It is taken to be divided where that fits better.
    """
    calls = {row.call for row in run.calls if row.step == step}
    if scale == 1.0 or calls & BY_SCALER or "optimizer_step" not in calls:
        return False
    rows = [r for r in run.tensors("grad_output", "weight_grad") if r.step == step]
    sizes = list(_sizes(rows))
    of_biases = [size for row, size in sizes if row.slot == "bias"]
    known = of_biases or [size for row, size in sizes if len(row.shape) > 1]
    return bool(known) and median(known) / log2(scale) < -0.5


def _sizes(rows: list[TensorRow]) -> Iterator[tuple[TensorRow, float]]:
    """Yield each weight gradient with log2 of its size over what the gradient of the output makes one expect."""
    outputs = {r.module: r for r in rows if r.role == "grad_output" and r.slot.startswith("out")}
    for row in rows:
        above = outputs.get(row.module)
        if row.role != "weight_grad" or above is None or not above.shape:
            continue
        size, there = histogram_of(row).rms, histogram_of(above).rms
        features = above.shape[1] if len(above.shape) == 4 else above.shape[-1]
        if size and there and features:
            yield row, log2(size / (there * sqrt(above.numel / features)))
