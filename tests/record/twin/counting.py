"""Modes that count, as a user's own would."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    """Counts the operations that it sees."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


class CountingFunctions(TorchFunctionMode):
    """Counts the functions of torch that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))
