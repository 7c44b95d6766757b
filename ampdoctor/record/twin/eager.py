"""Compiled modules run eagerly for one step: compiled code shows no operations to look at."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ampdoctor.record.live_objects import live_instances

_SET_STANCE: Any = getattr(torch.compiler, "set_stance", None)
"""Torch has it since 2.6."""


def cannot_set_aside() -> str | None:
    """Return why compiled code would go on running, None where there is none or it can be set aside."""
    if _SET_STANCE is None and compiles():
        return "this version of torch cannot run compiled modules eagerly for one step"
    return None


class Eagerly:
    """The stance "force_eager" from `begin` to `end`; nothing where nobody has loaded the compiler.

    Attributes:
        on: there is compiled code, and it is set aside.
    """

    def __init__(self) -> None:
        self._ours: Any = None
        self.on = False

    def begin(self) -> None:
        """Set compiled code aside."""
        if "torch._dynamo" in sys.modules and self._ours is None and _SET_STANCE is not None:
            # What will only be compiled in this step is executed eagerly, too.
            self._ours = _SET_STANCE("force_eager")
            self.on = compiles()

    def end(self) -> None:
        """Go on with the code that was compiled, and with the stance that the user had chosen."""
        if self._ours is None:
            return
        ours, self._ours, self.on = self._ours, None, False
        frames = sys.modules["torch._dynamo.eval_frame"]
        if getattr(frames, "_stance", None) is getattr(ours, "stance", None):
            ours.__exit__(None, None, None)
            return
        # The user has chosen another one meanwhile. Where that is for a block only, ours must not come back after it.
        for chosen in live_instances(type(ours)):
            if chosen.prev is ours.stance:
                chosen.prev = ours.prev


def compiles() -> bool:
    """Whether anything was compiled, or is to be when it is first called."""
    if "torch._dynamo" not in sys.modules:
        return False
    frames = sys.modules.get("torch._dynamo.convert_frame")
    backends: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", {})
    # Contexts that only disable the compiler have None for a backend.
    wrapped = any(backend is not None for backend in backends.values())
    return wrapped or bool(getattr(frames, "FRAME_COMPILE_COUNTER", None))
