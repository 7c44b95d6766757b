"""A fork copies the recorder into a process that is not to record: a data loader's worker, for instance."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Disowned(Protocol):
    """Has something to do in a forked child."""

    def disown(self) -> None:
        """Record nothing here, write nothing."""


def forget_in_children(owner: Disowned) -> None:
    """Call `owner.disown` in every forked child; the hook can't be unregistered, so it does not keep `owner` alive."""
    reference = weakref.ref(owner)

    def in_child() -> None:
        copied = reference()
        if copied is not None:
            copied.disown()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)
