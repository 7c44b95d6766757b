"""The settings that a step can run in: number format, loss scale, and who applies the scale."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = {None: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Setting:
    """Without a half dtype the step runs in plain FP32, without autocast, and may still be scaled."""

    half: torch.dtype | None = torch.float16
    scale: float = 1.0
    scaled_by: Literal["scaler", "hand", "none"] = "scaler"

    def __post_init__(self) -> None:
        if self.scaled_by == "none" and self.scale != 1.0:
            raise ValueError("an unscaled setting has the scale 1")

    def __str__(self) -> str:
        return f"{_NAMES[self.half]}@2^{math.log2(self.scale):g}-{self.scaled_by}"

    def to(self, half: torch.dtype | None) -> Setting:
        """Return this setting in another number format; None is FP32."""
        return replace(self, half=half)

    def at(self, scale: float) -> Setting:
        """Return this setting at another loss scale."""
        return replace(self, scale=scale)

    @property
    def dtype(self) -> torch.dtype:
        """The format in which a model with weights of its own choosing holds them."""
        return self.half or torch.float32

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of the forward pass."""
        if self.half is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=self.half)


class Scaling:
    """How one setting scales losses, unscales gradients and lets optimizers step."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.used = False
        self.scaler = torch.amp.GradScaler("cpu", init_scale=setting.scale, enabled=setting.scaled_by == "scaler")

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Run the backward pass of `loss`, scaled in the setting's way."""
        if self.setting.scaled_by == "hand":
            (loss * self.setting.scale).backward(retain_graph=retain_graph)
        else:
            self.scaler.scale(loss).backward(retain_graph=retain_graph)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Unscale, skip on inf or NaN, step."""
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        # The scaler refuses FP16 gradients: with half weights people unscale by hand.
        half = any(g.dtype == torch.float16 for g in gradients)
        if self.setting.scaled_by == "scaler" and not half:
            self.scaler.step(optimizer)
            self.used = True
        elif self.setting.scaled_by == "none" or _unscaled(gradients, self.setting.scale):
            optimizer.step()

    def update(self) -> None:
        """End the step."""
        if self.used:
            self.scaler.update()


def _unscaled(gradients: Iterable[torch.Tensor], scale: float) -> bool:
    finite = True
    for gradient in gradients:
        gradient.div_(scale)
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        finite &= bool(values.isfinite().all())
    return finite
