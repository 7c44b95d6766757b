"""Compiled modules run eagerly for one step: compiled code shows no operations to look at."""

from __future__ import annotations

import sys
from typing import Any

import torch


class Eagerly:
    """The stance "force_eager" from `begin` to `end`; nothing where nobody has loaded the compiler."""

    def __init__(self) -> None:
        self._stance: Any = None

    @property
    def on(self) -> bool:
        """Whether compiled code is set aside."""
        return self._stance is not None

    def begin(self) -> None:
        """Set compiled code aside."""
        if "torch._dynamo" in sys.modules and self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")

    def end(self) -> None:
        """Go on with the code that was compiled, and with the stance that the user had chosen."""
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
