"""Learning rate schedulers: each step of one, for the optimizer whose rate it sets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import lr_scheduler

from ampdoctor.record.groups import groups_of
from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from ampdoctor.record.patching import Patches


class _Depth(threading.local):
    """How many steps of schedulers this thread is in: several may build theirs before one is seen to train."""

    now = 0


class Schedulers(Watcher):
    """Watches `step` of every scheduler of torch's that counts its steps.

    ReduceLROnPlateau goes by a metric: its steps use up no schedule.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._depth = _Depth()

    def install(self, patches: Patches) -> None:
        """Put its wrappers in place."""
        safe = self._guarded
        for kind in vars(lr_scheduler).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, lr_scheduler.LRScheduler)
                and kind is not lr_scheduler.ReduceLROnPlateau
                and "step" in vars(kind)
            ):
                patches.around(kind, "step", safe(self._before), safe(self._after))

    def _before(self, scheduler: Any, *_: Any, **__: Any) -> tuple[dict[str, Any] | None, Any]:
        self._depth.now += 1
        optimizer = getattr(scheduler, "optimizer", None)
        # A scheduler of several steps them all, and each takes a first one when it is made.
        inner = self._depth.now > 1 or vars(scheduler).get("_step_count") == 0
        if inner or not isinstance(optimizer, torch.optim.Optimizer):
            return None, None
        name = self._state.optimizers.name(optimizer)
        rates = {"lr_before": _rate(optimizer, "lr"), "base_lr": _rate(optimizer, "initial_lr")}
        return self._log.begin("scheduler_step", name, **rates), optimizer

    def _after(self, token: tuple[dict[str, Any] | None, Any] | None, _: Any, error: BaseException | None) -> None:
        if token is None:
            return
        self._depth.now -= 1
        call, optimizer = token
        if call is not None:
            call["lr_after"] = _rate(optimizer, "lr")
            self._log.finish(call, None, error)


def _rate(optimizer: torch.optim.Optimizer, key: str) -> float | None:
    """Return a number of the first group; one on an accelerator stays unread."""
    group: dict[str, Any] = next(iter(groups_of(optimizer)), {})
    rate = group.get(key)
    if isinstance(rate, torch.Tensor):
        return float(rate) if rate.device.type == "cpu" and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None
