"""A `backward` whose gradients are ours: what was accumulated before is set aside and comes back as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.twin.replay.forward_again import NotTheSameError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import torch
    from typing_extensions import Self


class OwnGradients:
    """A context in which the `.grad` of `leaves` begins with None.

    Raises:
        NotTheSameError: on entry; something of the user's would act on the gradients, and perhaps on the weights.
    """

    def __init__(self, leaves: Iterable[torch.Tensor]) -> None:
        self._leaves = list({id(leaf): leaf for leaf in leaves}.values())

    def __enter__(self) -> Self:
        if any(getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf in self._leaves):
            raise NotTheSameError("hooks of the training's own act on the gradients of its weights")
        self._before = [leaf.grad for leaf in self._leaves]
        for leaf in self._leaves:
            leaf.grad = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for leaf, gradient in zip(self._leaves, self._before, strict=True):
            leaf.grad = gradient
        self._before.clear()

    def found(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Return the gradients that have been accumulated since."""
        return [(leaf, leaf.grad) for leaf in self._leaves]
