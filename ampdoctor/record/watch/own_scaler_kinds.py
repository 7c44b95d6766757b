"""Frameworks that scale losses without a GradScaler: how to tell their classes, and what they say of the scale.

Told by what a class has and not by its name or package: copies of these classes are in many a repository. Nothing here
imports a framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Settings(NamedTuple):
    """How a scale changes; of one that never does, the factors are 1."""

    growth_factor: float = 1.0
    backoff_factor: float = 1.0
    growth_interval: int = 1


@dataclass(frozen=True)
class Kind:
    """One way to keep a loss scale.

    Attributes:
        marks: what its class has.
        method: the one of them that decides whether a step is skipped.
        steps: the optimizers within are stepped by that method; else by the user, afterwards.
        keeper: what keeps the scale of an object of the class; several may share it.
        scale: the scale, a number or a tensor; None where it does not scale.
        skipped: whether that method, which returned the second argument, has found an overflow.
        settings: how the scale changes.
    """

    marks: frozenset[str]
    method: str
    steps: bool
    keeper: Callable[[Any], Any]
    scale: Callable[[Any], Any]
    skipped: Callable[[Any, Any], bool]
    settings: Callable[[Any], Settings]


def _deepspeed_config(optimizer: Any) -> Any:
    """Return where ZeRO's optimizers, and the others of DeepSpeed, keep what belongs to the scale."""
    return getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", optimizer)


def _deepspeed_dynamic(optimizer: Any) -> bool:
    return bool(
        getattr(_deepspeed_config(optimizer), "dynamic_loss_scale", getattr(optimizer, "dynamic_loss_scale", 0))
    )


def _deepspeed_settings(optimizer: Any) -> Settings:
    config = _deepspeed_config(optimizer)
    if not _deepspeed_dynamic(optimizer):
        return Settings()
    return Settings(float(config.scale_factor), 1.0 / config.scale_factor, int(config.scale_window))


def _megatron_scaler(optimizer: Any) -> Any:
    """Return the scaler; that of a chain is its first one's, as it is for Megatron."""
    chained = getattr(optimizer, "chained_optimizers", None)
    return getattr(chained[0] if chained else optimizer, "grad_scaler", None)


def _megatron_settings(optimizer: Any) -> Settings:
    scaler = _megatron_scaler(optimizer)
    if not hasattr(scaler, "growth_interval"):
        return Settings()
    return Settings(float(scaler.growth_factor), float(scaler.backoff_factor), int(scaler.growth_interval))


def _apex_settings(scaler: Any) -> Settings:
    return Settings(2.0, 0.5, int(scaler._scale_seq_len)) if scaler.dynamic else Settings()


DEEPSPEED = Kind(
    marks=frozenset({"step", "_update_scale", "loss_scale"}),
    method="step",
    steps=True,
    keeper=_deepspeed_config,
    scale=lambda optimizer: optimizer.loss_scale,
    skipped=lambda optimizer, _: bool(optimizer.overflow),
    settings=_deepspeed_settings,
)
MEGATRON = Kind(
    marks=frozenset({"step", "get_loss_scale", "scale_loss", "prepare_grads"}),
    method="step",
    steps=True,
    keeper=_megatron_scaler,
    scale=lambda optimizer: getattr(_megatron_scaler(optimizer), "scale", None),
    skipped=lambda _, result: isinstance(result, tuple) and result[0] is False,
    settings=_megatron_settings,
)
APEX = Kind(
    marks=frozenset({"update_scale", "loss_scale", "unscale", "clear_overflow_state"}),
    method="update_scale",
    steps=False,
    keeper=lambda scaler: scaler,
    scale=lambda scaler: scaler.loss_scale(),
    skipped=lambda _, result: bool(result),
    settings=_apex_settings,
)
KINDS = (DEEPSPEED, MEGATRON, APEX)


def classes() -> Iterator[tuple[Any, Kind]]:
    """Yield every class of this process that decides on steps in one of these ways."""
    seen, stack = {object}, [object]
    while stack:
        found = {made for made in type.__subclasses__(stack.pop()) if made is not type}
        new = found - seen
        seen |= new
        stack += new
        for made in new:
            for kind in KINDS:
                if kind.method in vars(made) and all(any(m in vars(k) for k in made.__mro__) for m in kind.marks):
                    yield made, kind


def stepped_by(holder: Any) -> list[torch.optim.Optimizer]:
    """Return the optimizers of torch's that an optimizer of a framework steps."""
    chained = getattr(holder, "chained_optimizers", None) or [holder]
    inner: list[Any] = [getattr(one, "optimizer", None) for one in chained]
    return [one for one in inner if issubclass(type(one), torch.optim.Optimizer)]
