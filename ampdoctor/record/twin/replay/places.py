"""Places in a replay: what the user's line was when the step ran, not the line that the replay runs in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch.nn.modules import module as torch_hooks

from ampdoctor.record.callsite import call_site
from ampdoctor.record.patching import Patches
from ampdoctor.record.twin.place import NOWHERE, Place, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from ampdoctor.record.callsite import CallSite


class ReplayPlaces(Places):
    """Follows the modules of a replay.

    Attributes:
        source: the user's line that made the call which is executed again.
        between: what runs is no operation of a module's, but lies between the calls, in the backward pass.
    """

    def __init__(self) -> None:
        self._here = call_site()
        self.source: CallSite = NOWHERE
        self.between = False
        super().__init__(lines=True, site=self._line)

    def current(self) -> Place:
        """Return the place of the operation that is about to run."""
        return Place(None, True, NOWHERE) if self.between else super().current()

    def _line(self) -> CallSite:
        site = call_site()
        return self.source if site == self._here else site

    @contextlib.contextmanager
    def following(self, path: Callable[[nn.Module], str]) -> Iterator[None]:
        """Be told of each module that begins and ends."""
        patches = Patches()
        # Torch asks in order to warn of hooks that fire twice on a compiled module; of ours the user knows nothing.
        if hasattr(torch_hooks, "_has_any_global_hook"):
            patches.replace(torch_hooks, "_has_any_global_hook", lambda: False)
        enter, leave = self.enter, self.leave

        def before(module: nn.Module, _: tuple[Any, ...]) -> None:
            enter(path(module))

        def after(module: nn.Module, _: tuple[Any, ...], __: Any) -> None:
            leave(path(module))

        handles = [
            torch_hooks.register_module_forward_pre_hook(before),
            torch_hooks.register_module_forward_hook(after, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            patches.undo()
