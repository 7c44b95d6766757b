"""Loss scales that frameworks keep for themselves, told as those of GradScaler are.

What scales a loss there is a multiplication like any other. It is found in the loss's graph, by the scale that the
framework holds at that moment, which is not read from a device.
"""

from __future__ import annotations

import weakref
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import SCALED, note
from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.quiet import in_backward
from ampdoctor.record.tensors import tensors_in
from ampdoctor.record.watch.base import Watcher
from ampdoctor.record.watch.own_scaler_kinds import classes, stepped_by
from ampdoctor.record.watch.scaled_by import scaled_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ampdoctor.record.patching import Patches
    from ampdoctor.record.scaler import ScalerEvents
    from ampdoctor.record.step_ends import StepEnds
    from ampdoctor.record.watch.own_scaler_kinds import Kind

_UNSCALED = SimpleNamespace(name="UNSCALED")
"""What GradScaler calls the stage in which an optimizer's gradients have been divided."""


class OwnScaler:
    """A framework's scaler with as much of GradScaler's surface as `ScalerEvents` asks for."""

    def __init__(self, holder: Any, kind: Kind) -> None:
        self._holder, self.kind = weakref.ref(holder), kind
        self._tensor: torch.Tensor | None = None
        self._settings = kind.settings(holder)
        # For BF16 and FP32 the frameworks have such a scaler too. It is read once; it may be on a device.
        self._does_nothing = self._settings.growth_factor == 1.0 and kind.scale(holder) in (None, 1.0)
        self._per_optimizer_states: dict[int, dict[str, Any]] = {}

    @property
    def keeper(self) -> Any:
        """What keeps the scale, if it is still there."""
        holder = self._holder()
        return None if holder is None else self.kind.keeper(holder)

    @property
    def scale(self) -> Any:
        """The scale as the framework holds it: a number or a tensor; None for none, or where it is gone."""
        holder = self._holder()
        return None if holder is None or self._does_nothing else self.kind.scale(holder)

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self.scale is not None

    def get_growth_factor(self) -> float:
        """Return what the scale grows by."""
        return self._settings.growth_factor

    def get_backoff_factor(self) -> float:
        """Return what it is multiplied by after an overflow."""
        return self._settings.backoff_factor

    def get_growth_interval(self) -> int:
        """Return after how many steps without an overflow it grows."""
        return self._settings.growth_interval

    def _get_scale_async(self) -> torch.Tensor | None:
        scale = self.scale
        if scale is None or isinstance(scale, torch.Tensor):
            return scale
        if self._tensor is None or float(self._tensor) != scale:
            self._tensor = torch.tensor(float(scale), dtype=torch.float64, device="cpu")
        return self._tensor

    def divided(self, optimizers: Iterable[torch.optim.Optimizer], *, overflow: bool = False) -> None:
        """The gradients of these are divided by the scale from here on."""
        found = {"cpu": torch.tensor(float(overflow), device="cpu")}
        state = {"stage": _UNSCALED, "found_inf_per_device": found}
        self._per_optimizer_states = {id(optimizer): state for optimizer in optimizers}

    def multiplied(self) -> None:
        """Gradients are multiplied by it from here on."""
        self._per_optimizer_states = {}


class OwnScalers(Watcher):
    """Watches what decides on steps in DeepSpeed, Megatron and Apex.

    Args:
        state: what the parts of the recorder share.
        log: where calls go.
        scalers: where events of scalers go.
        ends: told of steps that end.
        meet: takes note of an optimizer that is about to step, and returns its name.
    """

    def __init__(
        self, state: Any, log: Any, scalers: ScalerEvents, ends: StepEnds, meet: Callable[[torch.optim.Optimizer], str]
    ) -> None:
        super().__init__(state, log)
        self._scalers, self._ends, self._meet = scalers, ends, meet
        self._kinds: dict[type, Kind] = {}
        self._known: dict[int, OwnScaler] = {}
        self._patches: Patches | None = None
        self._looked = False

    def install(self, patches: Patches) -> None:
        """Wrap what is there, and the rest before the first backward pass: by then the scaler has been made."""
        self._patches = patches
        self._wrap_classes()
        patches.around(torch.autograd, "backward", self._guarded(self._before_backward), lambda *_: None)

    def remove(self) -> None:
        """Let go of what it holds."""
        self._known.clear()
        self._patches = None

    def _wrap_classes(self) -> None:
        for made, kind in classes():
            if made not in self._kinds and self._patches is not None:
                self._kinds[made] = kind
                before = self._guarded(partial(self._before, kind))
                self._patches.around(made, kind.method, before, self._guarded(self._after))

    def _before_backward(self, tensors: Any = None, *_: Any, **__: Any) -> None:
        if in_backward():
            return
        if not self._looked:
            self._looked = True
            self._wrap_classes()
            for made, kind in self._kinds.items():
                found: list[Any] = live_instances(made)
                for holder in found:
                    self._scaler(holder, kind)
        for scaler in self._alive():
            nodes = [scaled_by(root.grad_fn, scaler.scale) for root in tensors_in(tensors)]
            for node in filter(None, nodes):
                self._ends.may_end()  # this pass belongs to the next step
                note(node, SCALED, True)
                scaler.multiplied()
                self._scalers.scaled(scaler, None, None)

    def _alive(self) -> Iterator[OwnScaler]:
        yield from (scaler for scaler in self._known.values() if scaler.is_enabled())

    def _scaler(self, holder: Any, kind: Kind) -> OwnScaler | None:
        try:
            keeper = kind.keeper(holder)
            known = self._known.get(id(keeper))
            if known is None or known.keeper is not keeper:
                known = self._known[id(keeper)] = OwnScaler(holder, kind)
        except (AttributeError, TypeError):  # only just being made, or of another kind after all
            return None
        return known

    def _before(self, kind: Kind, holder: Any, *_: Any, **__: Any) -> Any:
        scaler = self._scaler(holder, kind)
        if scaler is None or self._scalers.stepping or not scaler.is_enabled():
            return None
        if not kind.steps:
            return holder, scaler, list(self._state.optimizers.live()), None
        inner = stepped_by(holder)
        names = [self._meet(optimizer) for optimizer in inner]
        call = self._log.begin("scaler_step", names[0] if names else None)
        self._scalers.step_begins(scaler)
        scaler.divided(inner)
        return holder, scaler, inner, call

    def _after(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        holder, scaler, optimizers, call = token
        self._log.finish(call, None, error)
        skipped = error is None and scaler.kind.skipped(holder, result)
        scaler.divided(optimizers, overflow=skipped)
        if skipped or scaler.kind.steps:
            for optimizer in optimizers:
                self._scalers.step_ended(scaler, optimizer, failed=error is not None)
        else:
            for optimizer in optimizers:
                self._log.finish(self._log.begin("unscale", self._state.optimizers.name(optimizer)))
        if error is None:
            self._updated(scaler, optimizers if skipped or scaler.kind.steps else ())

    def _updated(self, scaler: OwnScaler, done: Iterable[torch.optim.Optimizer]) -> None:
        """The scale has been set for the next step, and the step at hand is over for the optimizers in `done`."""
        self._log.finish(self._log.begin("update", self._scalers.name(scaler)))
        self._scalers.updated(scaler, by_hand=False)
        for optimizer in done:
            self._ends.optimizer_ended(self._state.optimizers.name(optimizer), by_scaler=True)
        self._ends.may_end()
