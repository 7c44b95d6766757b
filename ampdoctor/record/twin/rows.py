"""Queues the rows of the `twins` table: what was compared, once the numbers have arrived."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ampdoctor.formats import FORMATS
from ampdoctor.record import stats
from ampdoctor.record.stats import fast_vector
from ampdoctor.record.twin.compare import Comparison, comparison_vector, decode, together
from ampdoctor.trace.schema import TwinRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ampdoctor.record.log import Deferred, Scalar, StepLog, Values
    from ampdoctor.record.twin.counterfactual import Counterfactual


@dataclass(frozen=True)
class World:
    """Whose values are compared: a counterfactual's or, without one, the run's own.

    Attributes:
        counterfactual: the setting; None for the run.
        half: name of the format of what is half in the run.
    """

    counterfactual: Counterfactual | None
    half: str

    @property
    def smallest_normal(self) -> float:
        """Smallest normal number of its format."""
        cf = self.counterfactual
        return FORMATS[cf.number_format if cf else self.half].min_normal

    def scale(self, own_scale: float) -> float:
        """Return the loss scale in its gradients; `own_scale` is the run's."""
        cf = self.counterfactual
        return own_scale if cf is None or cf.loss_scale is None else cf.loss_scale

    def columns(self, own_scale: float | None) -> dict[str, Any]:
        """Return the columns that say whose values these are; `own_scale` is the run's."""
        cf = self.counterfactual
        if cf is None:
            return {"counterfactual": "run", "number_format": None, "loss_scale": own_scale, "fp32_modules": []}
        scale = own_scale if cf.loss_scale is None else cf.loss_scale
        return {
            "counterfactual": cf.name, "number_format": cf.number_format, "loss_scale": scale,
            "fp32_modules": list(cf.fp32_modules),
        }  # fmt: skip


@dataclass
class TwinRows:
    """The rows of one twin step.

    Args:
        log: the step.
    """

    log: StepLog
    _gradients: dict[World, list[tuple[Deferred, Scalar]]] = field(default_factory=dict)

    def add(
        self,
        world: World,
        site: tuple[str, str, str],
        values: torch.Tensor,
        reference: torch.Tensor,
        *,
        scale: Scalar,
        micro_batch: int | None,
        call: int = 0,
    ) -> None:
        """Compare `values` with `reference`, its FP32 twin.

        Args:
            world: whose values they are.
            site: module path, role, slot.
            values: what it computed.
            reference: what the FP32 twin computed.
            scale: the run's loss scale; None where it has none. Activations have none in them.
            micro_batch: the backward pass they come from; None for what the passes add up to.
            call: which call of the module.
        """
        own_scale = scale if isinstance(scale, float) else 1.0
        ratio = 1.0 if site[1] == "activation" else world.scale(own_scale) / own_scale
        key = self.log.keep(comparison_vector(values, reference, world.smallest_normal, ratio))
        module, role, slot = site
        if role == "weight_grad":
            self._gradients.setdefault(world, []).append((key, scale))
        histogram = self.log.keep(fast_vector(values)) if _is_reference(world) else None
        fixed: dict[str, Any] = {
            "step": self.log.step, "micro_batch": micro_batch, "seq": self.log.next_seq(), "role": role,
            "module": module, "slot": slot, "call": call, "shape": list(values.shape),
        }  # fmt: skip

        def build(found: Values) -> TwinRow:
            own = found.number(scale)
            in_it = 1.0 if role == "activation" else own or 1.0
            comparison = decode(found.vector(key))
            if role != "activation":
                comparison = _divided(comparison, world, in_it)
            bins = {} if histogram is None else _bins(found, histogram, in_it)
            return TwinRow(**fixed, **world.columns(own), **_columns(comparison), **bins)

        self.log.row("twins", build)

    def loss(self, world: World, value: torch.Tensor, micro_batch: int, scale: Scalar) -> None:
        """Note the value that a backward pass starts from; the forward is not scaled anew, so `scale` is the run's."""
        number = self.log.scalar(value.detach())
        seq, step = self.log.next_seq(), self.log.step

        def build(found: Values) -> TwinRow | None:
            own, loss = found.number(scale), found.number(number)
            if loss is None:
                return None
            return TwinRow(
                step=step, micro_batch=micro_batch, seq=seq, role="loss", module="", slot="", call=0, shape=[],
                value=loss / (own or 1.0), **world.columns(own), **_columns(together([])),
            )  # fmt: skip

        self.log.row("twins", build)

    def total(self) -> None:
        """Queue what all weight gradients together come to."""
        for world, parts in self._gradients.items():
            self.log.row("twins", self._total(world, parts, self.log.next_seq()))
        self._gradients = {}

    def _total(self, world: World, parts: Iterable[tuple[Deferred, Scalar]], seq: int) -> Any:
        step = self.log.step

        def build(found: Values) -> TwinRow:
            scales = [found.number(scale) for _, scale in parts]
            comparisons = [
                _divided(decode(found.vector(key)), world, own or 1.0)
                for (key, _), own in zip(parts, scales, strict=True)
            ]
            return TwinRow(
                step=step, seq=seq, role="gradient", module="", slot="", call=0, shape=[],
                **world.columns(scales[-1]), **_columns(together(comparisons)),
            )  # fmt: skip

        return build


def _is_reference(world: World) -> bool:
    cf = world.counterfactual
    return cf is not None and cf.number_format == "fp32" and cf.loss_scale is None


def _divided(comparison: Comparison, world: World, own: float) -> Comparison:
    """Divide the loss scales out of a gradient."""
    return comparison.divided(world.scale(own), own)


def _columns(c: Comparison) -> dict[str, Any]:
    counts = {
        name: int(getattr(c, name))
        for name in ("numel", "nonzero", "flushed", "too_small", "subnormal", "overflowed", "nonfinite",
                     "nonfinite_fp32")
    }  # fmt: skip
    return {
        **counts, "cosine": c.cosine, "norm_ratio": c.norm_ratio, "energy_lost": c.energy_lost,
        "sum_squares_fp32": c.squares_fp32, "absmax": c.absmax,
    }  # fmt: skip


def _bins(found: Values, key: Deferred, own: float) -> dict[str, Any]:
    """Return the histogram with the loss scale divided out, which bins allow for powers of two only."""
    mantissa, exponent = math.frexp(own)
    if mantissa != 0.5:
        return {}
    statistics = stats.decode(found.vector(key))
    return {"exp_lowest": statistics.exp_lowest - (exponent - 1), "exp_counts": statistics.exp_counts}
