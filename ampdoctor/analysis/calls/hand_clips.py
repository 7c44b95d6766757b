"""Clipping that code of the user's writes itself, on gradients still multiplied by the loss scale.

No function of torch's is called. It shows in the gradients: on every step where it is active they come out with the
same norm, whatever norm they had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.stepping import taken_steps

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow

_SHRUNK = 0.99
"""Below it somebody has made the gradients smaller: half precision and the order of sums change less."""

_VARIES = 1.1
"""Norms that differ by less are near enough to make of a division, by the number of micro-batches say, a clipping."""


@dataclass(frozen=True)
class HandClips:
    """Steps of one optimizer on which its scaled gradients were cut to one and the same norm.

    Attributes:
        calls: the scaler's `step` or `unscale_` before which they had been cut, with `norm` and `resized`.
        scales: the loss scale on each of them.
        limit: that norm.
    """

    calls: tuple[CallRow, ...]
    scales: tuple[float, ...]
    limit: float

    @property
    def source(self) -> str | None:
        """`file:line` of the call that comes next."""
        return source_of(self.calls[-1])

    @property
    def norms(self) -> list[float]:
        """What the gradients had for a norm before."""
        return [(c.norm or 0.0) / (c.resized or 1.0) for c in self.calls]


def hand_clips(run: Run, steps: int, alike: float, plain_ratio: float) -> list[HandClips]:
    """Return such steps by optimizer.

    Args:
        run: the run.
        steps: so many at least, for one or two may come out alike by chance.
        alike: share by which the norms that come out may differ.
        plain_ratio: where the scale never changed, norms of at least so much of it seem to be multiplied by it.
    """
    cut: dict[str, list[tuple[CallRow, float]]] = {}
    for taken in taken_steps(run):
        if taken.scaler is None or not taken.scale or taken.scale == 1.0:
            continue
        for call in (*taken.calls, taken.call):
            own = call.call == "scaler_step" or (call.call == "unscale" and call.target == taken.optimizer)
            if own and call.norm and call.resized is not None and call.resized < _SHRUNK:
                cut.setdefault(taken.optimizer, []).append((call, taken.scale))
                break
    found = (_same(rows, alike) for rows in cut.values())
    return [h for h in found if h is not None and len(h.calls) >= steps and _judged(h, plain_ratio)]


def _same(rows: list[tuple[CallRow, float]], alike: float) -> HandClips | None:
    """Return all of `rows`, where they came out with the same norm; shrunk in any other way, it is no clipping."""
    norms = [call.norm or 0.0 for call, _ in rows]
    if max(norms) > min(norms) * (1.0 + alike):
        return None
    return HandClips(tuple(call for call, _ in rows), tuple(scale for _, scale in rows), sorted(norms)[len(norms) // 2])


def _judged(clips: HandClips, plain_ratio: float) -> bool:
    varied = max(clips.norms) >= min(clips.norms) * _VARIES
    follows = len(set(clips.scales)) == 1 and clips.limit >= plain_ratio * clips.scales[0]
    return varied and not follows
