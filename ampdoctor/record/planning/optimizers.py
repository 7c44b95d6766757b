"""Optimizers that a plan can be made with. One entry is one optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.eight_bit import EightBitAdamW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Make = Callable[[Sequence[torch.Tensor], bool], torch.optim.Optimizer]


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimizer.

    Attributes:
        name: what it is called.
        make: makes one of parameters, as torch would by default on a CUDA device (True) or a CPU.
        counts_on_device: its counter of steps lies on the device; else a CUDA device holds none.
    """

    name: str
    make: Make
    counts_on_device: bool = False


def _of_torch(kind: str, **settings: Any) -> Make:
    """On CUDA, torch steps all parameters at once by default (`foreach`), with temporaries of their size."""

    def make(parameters: Sequence[torch.Tensor], on_cuda: bool) -> torch.optim.Optimizer:
        made = getattr(torch.optim, kind, None)
        if made is None:
            raise AmpDoctorError(
                f"torch {torch.__version__} has no torch.optim.{kind}", hint="choose another optimizer"
            )
        chosen = {"foreach": on_cuda, "lr": 1e-3} | settings
        optimizer: torch.optim.Optimizer = made(list(parameters), **chosen)
        return optimizer

    return make


_ENTRIES = (
    OptimizerChoice("adamw", _of_torch("AdamW")),
    OptimizerChoice("adamw-fused", _of_torch("AdamW", foreach=None, fused=True), counts_on_device=True),
    OptimizerChoice("adam", _of_torch("Adam")),
    OptimizerChoice("adam-fused", _of_torch("Adam", foreach=None, fused=True), counts_on_device=True),
    OptimizerChoice("sgd", _of_torch("SGD")),
    OptimizerChoice("sgd-momentum", _of_torch("SGD", momentum=0.9)),
    OptimizerChoice("adafactor", _of_torch("Adafactor")),
    OptimizerChoice("adamw-8bit", lambda parameters, _: EightBitAdamW(parameters)),
)

OPTIMIZERS = {choice.name: choice for choice in _ENTRIES}


def optimizer_named(name: str) -> OptimizerChoice:
    """Return the optimizer of that name.

    Raises:
        AmpDoctorError: there is none; the hint lists those there are.
    """
    choice = OPTIMIZERS.get(name.strip().lower())
    if choice is None:
        raise AmpDoctorError(f"unknown optimizer {name!r}", hint="known optimizers: " + ", ".join(OPTIMIZERS))
    return choice
