"""Random operations: a twin takes the numbers that the run has drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.twin.operations import Operation

_DROPOUT = torch.ops.aten.native_dropout.default


class Draws:
    """The state that random numbers were drawn from, kept in order to draw the same once more."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._state = generator.get_state()

    @classmethod
    def of(cls, operation: Operation) -> Draws:
        """Keep the state of the generator that `operation` is about to draw from."""
        given = operation.kwargs.get("generator")
        if isinstance(given, torch.Generator):
            return cls(given)
        device = next(tensors_of((*operation.args, *operation.kwargs.values()))).device
        if device.type == "cuda":
            return cls(torch.cuda.default_generators[device.index])
        return cls(torch.default_generator)

    def again(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call `function` with the numbers of before, and leave the generator as it is now."""
        now = self._generator.get_state()
        self._generator.set_state(self._state)
        try:
            return function(*args, **kwargs)
        finally:
            self._generator.set_state(now)


def masked_dropout(operation: Operation, args: list[Any], result: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return what dropout with the run's own mask makes of the twin's input; None for other operations."""
    if operation.function is not _DROPOUT:
        return None
    mask, p = result[1], float(args[1])
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    return torch.ops.aten.native_dropout_backward(args[0], mask, scale), mask
