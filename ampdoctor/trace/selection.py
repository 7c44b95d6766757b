"""Which examined steps of a long run are judged: a run of weeks examines more of them than anybody needs to see.

What a rule must not miss is kept: the start, the end, each kind of trouble as it began and as it last was, and steps
with a second opinion. The rest is a sample at even distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampdoctor.trace.stream import Held

ROOM = 30_000
"""Rows of `tensors` that are judged at most. A row costs all rules together some 50 microseconds; 30,000 leave a
diagnosis at a few seconds, and are 15 steps of a model with 2000 tensors."""

LEAST_STEPS = 12
"""Steps that are judged however many rows they have."""

EACH_END = 3
"""Steps that are kept at each end of the run, of each kind of trouble and of each kind of step."""


def chosen_steps(held: Mapping[int, Held], marked: Iterable[Sequence[int]]) -> set[int] | None:
    """Return the steps to judge, None for all of them.

    Args:
        held: what was recorded of each examined step.
        marked: steps that something happened on, in order, by what happened.
    """
    total = sum(h.rows for h in held.values())
    steps = sorted(held)
    most = max(LEAST_STEPS, ROOM * len(steps) // max(total, 1))
    if total <= ROOM or most >= len(steps):
        return None
    nonfinite = [step for step in steps if held[step].nonfinite]
    wanted = dict.fromkeys(_ends(steps))
    for group in (nonfinite, *marked):
        wanted |= dict.fromkeys(_ends([step for step in group if step in held]))
    kept = list(wanted)[: 2 * most]
    spaced = np.linspace(0, len(steps) - 1, max(most - len(kept), 0) + 2).round().astype(int)
    return {*kept, *(steps[place] for place in spaced)}


def _ends(steps: Sequence[int]) -> list[int]:
    return [*steps[:EACH_END], *steps[-EACH_END:]]
