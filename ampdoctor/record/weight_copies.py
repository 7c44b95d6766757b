"""The weights of an optimizer as they were before its step, and what the step has made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.groups import groups_of
from ampdoctor.record.named_tuples import made
from ampdoctor.record.shards import local_part, part_of
from ampdoctor.record.stats import copied, subtract
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from ampdoctor.record.stats import Copy, Places
    from ampdoctor.record.tensor_log import TensorLog

WIDE = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
"""dtypes of weights whose updates are taken all at once, and as they are."""

Name = tuple[str, str]
"""Path of the module that holds a parameter, and what it is called there."""


class Stepped(NamedTuple):
    """A parameter that has been stepped.

    Attributes:
        parameter: the parameter.
        before: its copy; None where all copies lie in one piece.
        name: its name.
        group: its group; None where it has left the optimizer.
    """

    parameter: torch.Tensor
    before: torch.Tensor | None
    name: Name
    group: dict[str, Any] | None


class WeightCopies:
    """Copies of `parameters`, made at once, as there may be many small ones.

    Args:
        parameters: what the optimizer is about to step.
        names: theirs.
        in_one: they may lie in one piece of memory, which is counted whole.
    """

    def __init__(self, parameters: list[torch.Tensor], names: list[Name], *, in_one: bool) -> None:
        self._parameters, self._names = parameters, names
        self._whole: Copy | None = copied(parameters) if in_one else None
        self._now: Places | None = None
        self._apart = _copies(parameters) if self._whole is None else []

    def stepped(self, optimizer: torch.optim.Optimizer, *, closure: bool) -> list[Stepped]:
        """Return those that are still what they were; what a `closure` has made no gradient for was not stepped."""
        groups = {id(p): group for group in groups_of(optimizer) for p in group["params"]}
        found: list[Stepped] = [
            made(Stepped, (parameter, None, name, groups.get(id(parameter))))
            for parameter, name in zip(self._parameters, self._names, strict=True)
        ]
        if self._whole is not None:
            all_of_it = not closure and None not in [one.group for one in found]
            self._now = self._whole.describes(self._parameters) if all_of_it else None
            if self._now is not None:
                return found
            self._apart = self._whole.apart()
        return [
            one._replace(before=before)
            for one, before in zip(found, self._apart, strict=True)
            if one.group is not None and not (closure and one.parameter.grad is None) and _alike(one.parameter, before)
        ]

    def record_wide(self, tensors: TensorLog, stepped: list[Stepped]) -> None:
        """Record the updates of what is wide.

        They are taken the other way round, where the copies lie: of an update only magnitudes are kept.
        """
        if self._whole is not None and self._now is not None:
            subtract(self._whole, self._now)
            tensors.add_places("update", self._whole.places, self._whole.shapes, self._names)
            return
        wide = [(p, before, name) for p, before, name, _ in stepped if p.dtype in WIDE and before is not None]
        if wide:
            with torch.no_grad():
                torch._foreach_sub_([b for _, b, _ in wide], [local_part(p).detach() for p, *_ in wide])
        copies, names = [before for _, before, _ in wide], [name for *_, name in wide]
        tensors.add_all("update", copies, names, parts=[part_of(p) for p, *_ in wide])


def _alike(parameter: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether it is what it was: inside `step` others may have taken its place, or its values may lie elsewhere."""
    after = local_part(parameter)
    return before.shape == after.shape and before.device == after.device


def _copies(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return a copy of what this rank holds of each; those of usual dtypes are copied at once."""
    held = [local_part(p).detach() for p in parameters]
    usual = [p for p in held if p.dtype in WIDE or p.dtype in HALVES]
    with torch.no_grad():
        several = iter(torch._foreach_mul(usual, 1.0) if usual else ())
        return [next(several) if p.dtype in WIDE or p.dtype in HALVES else p.clone() for p in held]
