"""How far the optimizer would move each layer in FP32, and whether that fades away towards the first ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.backward.zero_gradients import flows
from ampdoctor.analysis.columns import recorded_dtypes
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measured import FP32
from ampdoctor.analysis.twins.opinions import twin_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.backward.zero_gradients import Flow, Site
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OptimizerRow

LAYERS = 4
"""Matrices that a depth is seen in; among fewer, one odd layer is a trend."""

TABLES = ("Embedding", "EmbeddingBag")
"""Modules of which a batch uses a few rows: the size of their gradient says nothing of depth."""


@dataclass(frozen=True)
class Layer:
    """The weight matrix of one layer on one step, as FP32 has it.

    Attributes:
        module: its module.
        slot: its name there.
        gradient: root mean square of its nonzero gradient elements.
        mobility: what the optimizer makes of it per unit of learning rate, over the root mean square of its weights.
    """

    module: str
    slot: str
    gradient: float
    mobility: float

    @property
    def site(self) -> str:
        """The site as people read it."""
        return f"{self.module}.{self.slot}" if self.module else self.slot


@dataclass(frozen=True)
class Depth:
    """The layers of one optimizer on one step, in the order of the forward pass.

    Attributes:
        step: the step.
        layers: the layers.
        by_twin: an FP32 twin knows the gradients; else the run itself keeps FP32's range.
    """

    step: int
    layers: tuple[Layer, ...]
    by_twin: bool

    @property
    def best(self) -> Layer:
        """The layer that moves most."""
        return max(self.layers, key=lambda layer: layer.mobility)

    @property
    def share(self) -> float:
        """How far the first layers move, as a share of the best: the larger of the first two decides."""
        first = max(layer.mobility for layer in self.layers[:2])
        return first / self.best.mobility if self.best.mobility else 1.0

    @property
    def trend(self) -> float:
        """Of the pairs of layers whose gradients are a binade apart, the share with the smaller one earlier.

        Of the rest nothing is said: where activations fade on the way up as gradients do on the way down, the weight
        gradients of many layers are alike.
        """
        logs = np.log2([layer.gradient for layer in self.layers])
        apart = [b - a for a, b in combinations(logs, 2) if abs(b - a) > 1.0]
        return sum(d > 0 for d in apart) / len(apart) if apart else 0.0

    @property
    def largest_jump(self) -> float:
        """The largest rise from one layer to the next, as a share of the whole (in binades): 1 is one odd layer."""
        logs = np.log2([layer.gradient for layer in self.layers])
        whole = float(logs.max() - logs[:2].max())
        return float(np.diff(logs).max()) / whole if whole > 0 else 1.0

    def standing(self, share: float) -> list[Layer]:
        """Return the layers that move by less than `share` of what the best does."""
        return [layer for layer in self.layers if layer.mobility < share * self.best.mobility]


@once_per_run
def depths(run: Run) -> tuple[Depth, ...]:
    """Return the layers by step and optimizer where FP32 gradients are known, from the second step on."""
    own = not _through_fp16(run)
    found = []
    for flow in flows(run):
        twin = _in_twin(run, flow.step)
        sizes = twin or (_in_run(flow) if own else {})
        if sizes and flow.step > 0:
            found += _by_optimizer(run, flow, sizes, by_twin=bool(twin))
    return tuple(found)


def _through_fp16(run: Run) -> bool:
    held = recorded_dtypes(run, "activation", "grad_output", "weight_grad")
    return "float16" in held or "float16" in run.table("tensors")["cast_to"].unique().to_pylist()


def _in_run(flow: Flow) -> dict[Site, float]:
    return {
        site: r.rms * math.sqrt(r.numel / (r.numel - r.zeros)) / (r.loss_scale or 1.0)
        for site, r in flow.gradients.items()
        if r.zeros < r.numel and len(r.shape) > 1
    }


def _in_twin(run: Run, step: int) -> dict[Site, float]:
    return {
        (r.module, r.slot): math.sqrt(r.sum_squares_fp32 / r.nonzero)
        for r in twin_rows(run)
        if r.step == step
        and (r.counterfactual, r.role, r.micro_batch) == (FP32, "weight_grad", None)
        and len(r.shape) > 1
        and r.nonzero
        and not r.nonfinite_fp32
    }


def _by_optimizer(run: Run, flow: Flow, sizes: dict[Site, float], *, by_twin: bool) -> list[Depth]:
    owner = {m.module: m.optimizer for m in run.modules if m.type not in TABLES}
    order = dict.fromkeys(r.module for r in flow.activations if r.slot.startswith("out"))
    place = {module: index for index, module in enumerate(order)}
    sites = [s for s in sizes if s[0] in place and owner.get(s[0]) is not None]
    sites.sort(key=lambda s: (owner[s[0]] or "", place[s[0]]))
    found = []
    for name, group in groupby(sites, key=lambda s: owner[s[0]]):
        config = next((o for o in run.optimizers if o.optimizer == name), None)
        layers = [_layer(flow, site, sizes[site], config) for site in group]
        known = tuple(layer for layer in layers if layer is not None)
        if len(known) >= LAYERS:
            found.append(Depth(flow.step, known, by_twin))
    return found


def _layer(flow: Flow, site: Site, gradient: float, config: OptimizerRow | None) -> Layer | None:
    weight = flow.weights.get(site)
    moved = _moved(gradient, config)
    if weight is None or not weight.rms or moved is None:
        return None
    return Layer(*site, gradient, moved / weight.rms)


def _moved(gradient: float, config: OptimizerRow | None) -> float | None:
    """Return the length of an update per unit of learning rate; None for optimizers that are not understood.

    Those with an epsilon (Adam, RMSprop) divide each gradient by its own size, so that only one near the epsilon is
    small; plain descent moves by the gradient itself.
    """
    if config is None:
        return None
    if config.eps is not None:
        return gradient / (gradient + config.eps)
    return gradient if config.type in {"SGD", "ASGD"} else None


def fading(run: Run, share: float, trend: float, jump: float) -> Sequence[Depth]:
    """Return the steps on which the first layers hardly move; none where they do on the last step that is known."""
    known = depths(run)
    found = [d for d in known if d.share < share and d.trend >= trend and d.largest_jump <= jump]
    later = [d for d in known if d.step >= known[len(known) // 2].step]
    often = 2 * sum(d in found for d in later) >= len(later)
    return found if known and often and found and found[-1].step == known[-1].step else []
