"""Steps that no optimizer tells of, because its `step` is compiled or not called: cleared gradients show their end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.groups import parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ampdoctor.record.patching import Patches


class CompiledSteps:
    """Tells from the parameters whether they have been updated since their gradients were last cleared.

    An optimizer that has told of one step is not compiled, nor is a scaler that has: nobody looks from then on.

    Args:
        ended: called where a step has ended, with the parameters whose gradients are about to be cleared.
    """

    def __init__(self, ended: Callable[[list[torch.Tensor]], None]) -> None:
        self._ended = ended
        self._others_tell = self._passed = False
        self._versions: dict[int, int] = {}
        # The same code for the steps of all optimizers.
        self._code_of_steps = torch.optim.Optimizer.profile_hook_step(lambda _: None).__code__

    def watch(self, patches: Patches) -> None:
        """Begin to look."""
        if not self._others_tell:
            patches.around(torch.autograd, "backward", lambda *_, **__: None, self._backward_ended)
            for owner in (torch.optim.Optimizer, torch.nn.Module):
                patches.around(owner, "zero_grad", self._clears, lambda *_: None)

    def told(self) -> None:
        """The end of this step is known."""
        self._passed = False

    def others_tell(self) -> None:
        """There are steps that show by themselves."""
        self._others_tell = True
        self._versions.clear()

    def _backward_ended(self, *_: Any) -> None:
        self._passed = True

    def _clears(self, owner: Any, *_: Any, **__: Any) -> None:
        """See whether `owner`, about to clear its gradients, has been updated by them."""
        if self._others_tell or torch.compiler.is_compiling():
            return
        try:
            with torch._C.DisableTorchFunction():  # a mode of the user's would see us look
                parameters = _parameters(owner)
                version = sum(p._version for p in parameters)
            updated = self._versions.get(id(owner), version) != version
            self._versions[id(owner)] = version
            if not (updated and self._passed) or self._within_a_step():
                return
        except Exception:  # noqa: BLE001 - classes of the user's
            return
        self._passed = False
        self._ended(parameters)

    def _within_a_step(self) -> bool:
        """Whether an optimizer that will tell of its step is in the middle of it: one with a closure."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is self._code_of_steps:
                return True
            frame = frame.f_back
        return False


def _parameters(owner: Any) -> list[torch.Tensor]:
    return list(owner.parameters()) if isinstance(owner, torch.nn.Module) else list(parameters_of(owner))
