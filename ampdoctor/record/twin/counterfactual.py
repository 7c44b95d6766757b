"""Counterfactuals as data: in which format and at which loss scale the step is executed once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch

from ampdoctor.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Counterfactual:
    """One other setting of the same step.

    Attributes:
        number_format: name of the format that takes the place of half (`fp32`, `bf16`, `fp16`).
        loss_scale: loss scale in place of the run's; None for the run's own.
        fp32_modules: paths (fnmatch patterns; a path means all below it) whose casts to half are undone. A module's
            result is cast to half again where the next one asks for it.
    """

    number_format: str
    loss_scale: float | None = None
    fp32_modules: tuple[str, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that takes the place of half."""
        name = FORMATS[self.number_format].dtype
        dtype: torch.dtype = getattr(torch, str(name))
        return dtype

    @property
    def name(self) -> str:
        """The name in the trace: `fp16@2^10+fp32:decoder`."""
        scale = "" if self.loss_scale is None else f"@{scale_name(self.loss_scale)}"
        modules = f"+fp32:{','.join(self.fp32_modules)}" if self.fp32_modules else ""
        return f"{self.number_format}{scale}{modules}"

    def keeps_in_fp32(self, module: str) -> bool:
        """Whether the module at this path is one of `fp32_modules` or lies below one."""
        return any(_covers(pattern, module) for pattern in self.fp32_modules)


FP32 = Counterfactual("fp32")
"""The reference that everything is compared with."""


def scale_name(scale: float) -> str:
    """Return `2^10` for a power of two, else the number."""
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{scale:g}"


def _covers(pattern: str, module: str) -> bool:
    parts: Sequence[str] = module.split(".")
    return any(fnmatchcase(".".join(parts[: n + 1]), pattern) for n in range(len(parts)))
