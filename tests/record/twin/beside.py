"""A function of some tensors with a twin beside it, and the same function on other tensors for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32, Counterfactual
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Beside(NamedTuple):
    """What came of it.

    Attributes:
        results: what the function returned.
        twin: the twin, still there.
        errors: of the twin's own.
    """

    results: list[torch.Tensor]
    twin: CarriedTwin
    errors: list[Exception]

    def values(self) -> list[torch.Tensor]:
        """Return the twins of the results."""
        return [self.twin.values(r) for r in self.results]


def beside(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], counterfactual: Counterfactual = FP32
) -> Beside:
    """Call `function` on copies of `tensors` with a twin beside it."""
    errors: list[Exception] = []
    twin = CarriedTwin(counterfactual)
    copies = [t.clone() for t in tensors]
    with TwinMode([twin], Places(lines=False), errors.append):
        results = as_list(function(*copies))
    return Beside(results, twin, errors)


def alone(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Call `function` on copies of `tensors`."""
    return as_list(function(*(t.clone() for t in tensors)))


def in_fp32(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Call `function` on FP32 copies of what is half."""
    return alone(function, [t.float() if t.dtype in HALVES else t for t in tensors])


def as_list(results: Any) -> list[torch.Tensor]:
    """Return one tensor or several as a list."""
    return list(results) if isinstance(results, (list, tuple)) else [results]


def same(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
    """Whether they are the same tensors to the bit; NaN is NaN."""
    return len(ours) == len(theirs) and all(
        a.dtype is b.dtype and a.shape == b.shape and bool(torch.where(a.isnan(), b.isnan(), a == b).all())
        for a, b in zip(ours, theirs, strict=True)
    )  # fmt: skip


def half(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Return random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
