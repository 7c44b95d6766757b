"""Parameters that are zero and whose gradients are zero because of each other, on every step up to the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.zero_gradients import ENOUGH, all_zero, flows, nonzero_in_fp32

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.zero_gradients import Flow, Site
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


@dataclass(frozen=True)
class Deadlock:
    """Two parameters that wait for each other.

    Attributes:
        pair: the two, as they were on the last step.
        arrives: the module at which a gradient arrives that is not zero: what the product goes into.
    """

    pair: tuple[TensorRow, TensorRow]
    arrives: str


@dataclass(frozen=True)
class Deadlocked:
    """All that wait for each other in a run.

    Attributes:
        locks: the pairs, in the order of the forward pass.
        steps: the examined steps on which it was so.
        last: what went through the model on the last of them.
    """

    locks: tuple[Deadlock, ...]
    steps: tuple[int, ...]
    last: Flow


def deadlocked(run: Run) -> Deadlocked | None:
    """Return the parameters of `run` that wait for each other; None where there are none."""
    seen = [flow for flow in flows(run) if flow.weights]
    if len(seen) < ENOUGH:
        return None
    stuck = set.intersection(*(_stuck(flow) for flow in seen)) - {
        (module, slot) for role, module, slot in nonzero_in_fp32(run) if role == "weight_grad"
    }
    last = seen[-1]
    locks = _locks(last, stuck)
    return Deadlocked(tuple(locks), tuple(f.step for f in seen), last) if locks else None


def _stuck(flow: Flow) -> set[Site]:
    """Return the parameters that are zero in every element, and have a gradient that is so too."""
    return {
        site
        for site, row in flow.weights.items()
        if all_zero(row) and site in flow.gradients and all_zero(flow.gradients[site])
    }


def _locks(flow: Flow, stuck: set[Site]) -> list[Deadlock]:
    """Return the pairs among `stuck` of which one multiplies the other, each parameter once."""
    order = {site: place for place, site in enumerate(flow.weights)}
    next_of = _next_with_parameters(flow)
    found: list[Deadlock] = []
    taken: set[Site] = set()
    for a, b in combinations(sorted(stuck, key=order.__getitem__), 2):
        arrives = _product(flow, a, b, next_of)
        if arrives is not None and not {a, b} & taken:
            taken |= {a, b}
            found.append(Deadlock((flow.weights[a], flow.weights[b]), arrives))
    return found


def _product(flow: Flow, a: Site, b: Site, next_of: dict[str, str]) -> str | None:
    """Return the module that the product of two parameters goes into; None where they need not be factors of one.

    They are where one module holds both, where the zeros of one go straight into the other, or where one gates a module
    that holds the other. A gradient must arrive at the product: where the loss does not use it, nothing waits.
    """
    (of_a, _), (of_b, _) = a, b
    if of_a == of_b:
        return of_a if flow.arrives(of_a) else None
    for outer, inner in ((of_a, of_b), (of_b, of_a)):
        follows = next_of.get(inner) == outer and _only_zeros(flow, inner)
        holds = inner.startswith(f"{outer}.") or not outer
        if (follows or holds) and flow.arrives(outer):
            return outer
    return None


def _only_zeros(flow: Flow, module: str) -> bool:
    return all(all_zero(r) for r in flow.activations if r.module == module and r.slot == "out")


def _next_with_parameters(flow: Flow) -> dict[str, str]:
    """Return for each module that holds parameters the one that comes after it in the forward pass."""
    holding = {module for module, _ in flow.weights}
    order = [r.module for r in flow.activations if r.slot == "out" and r.module in holding]
    return dict(pairwise(dict.fromkeys(order)))
