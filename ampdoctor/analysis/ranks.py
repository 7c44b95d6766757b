"""Where the ranks of one training differ in what they should agree in.

Reads columns and makes no row objects: there may be many ranks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampdoctor.trace.run import Run

BROKEN_GRADIENTS, BROKEN_LOSS, SKIPPED, SCALE = "broken gradients", "broken loss", "skipped", "scale"
KINDS = (BROKEN_LOSS, BROKEN_GRADIENTS, SKIPPED, SCALE)
"""What ranks are compared in, causes before what follows from them."""

_BROKEN = frozenset({BROKEN_GRADIENTS, BROKEN_LOSS})

UNSCALED = 1.0
"""Loss scale of what nobody scales."""

Fact = float
"""A loss scale, or whether something is so (a bool)."""


@dataclass(frozen=True)
class Difference:
    """Something in which ranks were not alike.

    Attributes:
        kind: one of KINDS.
        ranks: those that stand out: with NaN or infinities, or fewer than the others.
        others: the rest of them.
        steps: on which it was so, in order.
        fact: what the first of those that stand out had on the first of the steps: broken, skipped, or the scale.
    """

    kind: str
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    steps: tuple[int, ...]
    fact: Fact


@once_per_run
def differences(run: Run) -> tuple[Difference, ...]:
    """Return where ranks differ, in the order of KINDS, with the steps that several ranks have recorded."""
    if len(run.ranks) < 2:
        return ()
    facts = {rank: _facts(run.of_rank(rank)) for rank in run.ranks}
    if any(known[SCALE] for known in facts.values()):
        for known in facts.values():  # a rank that scales nothing beside ranks that do
            known[SCALE] = known[SCALE] or dict.fromkeys(known[SKIPPED], UNSCALED)
    found = (_difference(kind, {rank: known[kind] for rank, known in facts.items()}) for kind in KINDS)
    return tuple(difference for difference in found if difference is not None)


def differing_ranks(run: Run) -> tuple[int, ...]:
    """Return one rank for each kind of difference, of those that stand out and are not what `run` itself shows."""
    if len(run.ranks) < 2:
        return ()
    shown = run.ranks[0]
    chosen = (next((r for r in (*d.ranks, *d.others) if r != shown), None) for d in differences(run))
    return tuple(dict.fromkeys(rank for rank in chosen if rank is not None))


def _facts(run: Run) -> dict[str, dict[int, Fact]]:
    """Return by kind what is known of each step."""
    columns = run.table("steps").select(["step", "loss", "applied", "loss_scale"]).to_pydict()
    steps = columns["step"]
    finite = {s: math.isfinite(v) for s, v in zip(steps, columns["loss"], strict=True) if v is not None}
    return {
        BROKEN_LOSS: {step: not known for step, known in finite.items()},
        BROKEN_GRADIENTS: _broken_gradients(run),
        SKIPPED: {s: not v for s, v in zip(steps, columns["applied"], strict=True) if v is not None},
        SCALE: {s: v for s, v in zip(steps, columns["loss_scale"], strict=True) if v is not None},
    }


def _broken_gradients(run: Run) -> dict[int, Fact]:
    """Return by step whether a gradient within the backward pass, before ranks share any, held NaN or infinity."""
    table = run.table("tensors")
    table = table.filter(pc.equal(table["role"], "grad_output"))
    broken = pc.greater(pc.add(table["nan"], pc.add(table["posinf"], table["neginf"])), 0)
    known: dict[int, Fact] = dict.fromkeys(table["step"].to_pylist(), False)
    return known | dict.fromkeys(table.filter(broken)["step"].to_pylist(), True)


def other_endings(run: Run) -> dict[str, tuple[int, ...]]:
    """Return the exceptions that ended other ranks than the first, each with its ranks, where they had another one."""
    found: dict[str, tuple[int, ...]] = {}
    for rank in run.ranks[1:]:
        error = _ending(run.of_rank(rank))
        if error and error != _first_line(run.info.exception or ""):
            found[error] = (*found.get(error, ()), rank)
    return found


def _ending(run: Run) -> str:
    """Return the exception that the last recorded call raised; "" where it raised none."""
    errors = run.table("calls")["error"]
    return _first_line((errors[-1].as_py() if len(errors) else None) or "")


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def _difference(kind: str, facts: Mapping[int, Mapping[int, Fact]]) -> Difference | None:
    """Return how the ranks differ, judged by the first step on which they do."""
    steps = sorted({step for known in facts.values() for step in known})
    apart = [step for step in steps if len({known[step] for known in facts.values() if step in known}) > 1]
    if not apart:
        return None
    seen = {rank: known[apart[0]] for rank, known in facts.items() if apart[0] in known}
    usual = False if kind in _BROKEN else _usual(seen.values())
    ranks = tuple(rank for rank, fact in seen.items() if fact != usual)
    others = tuple(rank for rank in seen if rank not in ranks)
    return Difference(kind, ranks, others, tuple(apart), seen[ranks[0]])


def _usual(facts: Iterable[Fact]) -> Fact:
    """Return what most ranks have; of two as frequent, that of the first."""
    return Counter(facts).most_common(1)[0][0]
