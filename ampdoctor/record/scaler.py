"""Events of GradScaler. It touches the scaler's private attributes: the public ones wait for the device.

The scale is copied whenever it has changed, because the scaler changes it in place; nothing here reads a device value.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.autograd_graph import mark_scaled
from ampdoctor.record.log import Deferred, Outcome, Scalar
from ampdoctor.record.tensors import tensors_in
from ampdoctor.trace.schema import ScalerRow

if TYPE_CHECKING:
    from ampdoctor.record.log import Values
    from ampdoctor.record.state import State

Scaler = Any
"""torch.amp.GradScaler or a subclass."""


class _Scale(NamedTuple):
    """A copy of a scaler's scale, good as long as the version of its source is that one."""

    source: torch.Tensor
    version: int
    copy: torch.Tensor


class ScalerEvents:
    """Follows every scaler of the process.

    Attributes:
        stepping: an enabled scaler's `step` is under way: what the optimizer does now is the scaler's doing.
        optimizer_called: within it, the optimizer's own `step` has been called.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._numbers = itertools.count()
        self._scales: dict[str, _Scale] = {}
        self._last = ""
        self.stepping = self.optimizer_called = False

    def name(self, scaler: Scaler) -> str:
        """Return the scaler's name; its first use is an event."""
        known = self._names.get(id(scaler))
        if known is None or known[0]() is not scaler:
            known = (weakref.ref(scaler), f"scaler{next(self._numbers)}")
            self._names[id(scaler)] = known
            self._seen(scaler, known[1])
        return known[1]

    def scaled(self, scaler: Scaler, losses: Any, outputs: Any) -> None:
        """`scale` made `outputs` of `losses`."""
        name, log = self.name(scaler), self._state.log
        if scaler.is_enabled():
            for loss, output in zip(tensors_in(losses), tensors_in(outputs), strict=False):
                mark_scaled(output, (log.step, log.scalar(loss)) if output.grad_fn is not None else None)
            self._last = name
            log.scale = self._scale(scaler, name)

    def unscaled(self, scaler: Scaler, optimizer: torch.optim.Optimizer) -> None:
        """The user called `unscale_`."""
        name = self.name(scaler)
        self._event(name, "unscale", optimizer=self._state.optimizers.name(optimizer))

    def holds_scaled(self, scaler: Scaler, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer's gradients are still multiplied by the scale."""
        if not scaler.is_enabled():
            return False
        states = scaler._per_optimizer_states
        return id(optimizer) not in states or states[id(optimizer)]["stage"].name == "READY"

    def any_scaled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether any scaler says that the optimizer's gradients are multiplied by its scale in this step."""
        if self._state.log.scale is None:
            return False
        scalers = [ref() for ref, _ in self._names.values()]
        return any(self.holds_scaled(s, optimizer) for s in scalers if s is not None)

    def step_begins(self, scaler: Scaler) -> None:
        """An enabled scaler's `step` begins."""
        self.name(scaler)
        self.stepping, self.optimizer_called = True, False

    def step_ended(self, scaler: Scaler, optimizer: torch.optim.Optimizer, *, failed: bool) -> bool:
        """The scaler's `step` has returned or raised; returns whether it is known to have skipped the optimizer."""
        self.stepping = False
        if failed:
            return False
        skipped = self._found_inf(scaler, optimizer)
        self._state.log.outcomes.append(Outcome(True, skipped))
        log, seq = self._state.log, self._state.log.next_seq()
        name, optimizer_name = self.name(scaler), self._state.optimizers.name(optimizer)
        scale = self._last_scale(name)

        def build(values: Values) -> ScalerRow:
            number = values.number(skipped)
            found = None if number is None else bool(number)
            return ScalerRow(
                step=log.step, seq=seq, scaler=name, event="skip" if found else "step", optimizer=optimizer_name,
                scale=values.number(scale), found_inf=found,
            )  # fmt: skip

        log.row("scaler", build)
        if isinstance(skipped, Deferred):
            # A fused optimizer is called all the same and decides on the device; others are not.
            return not self.optimizer_called and issubclass(type(optimizer), torch.optim.Optimizer)
        return bool(skipped)

    def updated(self, scaler: Scaler, *, by_hand: bool) -> None:
        """`update` returned; `by_hand`: the user gave it the new scale, so that it is no verdict on any step."""
        name, log = self.name(scaler), self._state.log
        if not scaler.is_enabled():
            return
        before = self._last_scale(name)
        after = self._scale(scaler, name)
        seq = log.next_seq()

        def build(values: Values) -> ScalerRow:
            old, new = values.number(before), values.number(after)
            event = "set" if by_hand else "hold"
            if not by_hand and old is not None and new is not None and old != new:
                event = "growth" if new > old else "backoff"
            return ScalerRow(step=log.step, seq=seq, scaler=name, event=event, scale=old, scale_after=new)

        log.row("scaler", build)

    def value(self) -> float | None:
        """Return the scale of the scaler that was used last; this waits for the device."""
        known = self._scales.get(self._last)
        return float(known.copy) if known is not None else None

    def _scale(self, scaler: Scaler, name: str) -> Scalar:
        source = scaler._get_scale_async()
        if source is None:
            return None
        known = self._scales.get(name)
        if known is None or known.source is not source or known.version != source._version:
            known = self._scales[name] = _Scale(source, source._version, source.detach().clone())
        return self._state.log.scalar(known.copy)

    def _last_scale(self, name: str) -> Scalar:
        known = self._scales.get(name)
        return self._state.log.scalar(known.copy) if known is not None else None

    def _found_inf(self, scaler: Scaler, optimizer: torch.optim.Optimizer) -> Scalar:
        """What the scaler looked at to decide, on the host or, with a fused optimizer, on the device.

        Whether the optimizer was called says nothing: a fused one always is, and one that is no torch.optim.Optimizer
        tells nobody. Read before `update`, which starts afresh.
        """
        found = list(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
        return self._state.log.scalar(sum(f.to(found[0].device) for f in found)) if found else None

    def _seen(self, scaler: Scaler, name: str) -> None:
        enabled = bool(scaler.is_enabled())
        configured = {
            "growth_factor": float(scaler.get_growth_factor()),
            "backoff_factor": float(scaler.get_backoff_factor()),
            "growth_interval": int(scaler.get_growth_interval()),
        } if enabled else {}  # fmt: skip
        scale = self._scale(scaler, name) if enabled else None
        device = getattr(scaler, "_device", None)
        self._event(name, "seen", scale=scale, enabled=enabled, device_type=device, **configured)

    def _event(self, name: str, event: str, scale: Scalar = None, **columns: Any) -> None:
        log, seq = self._state.log, self._state.log.next_seq()
        log.row(
            "scaler",
            lambda values: ScalerRow(
                step=log.step, seq=seq, scaler=name, event=event, scale=values.number(scale), **columns
            ),
        )
