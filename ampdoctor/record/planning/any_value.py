"""Answers where code that only makes or updates numbers asks for one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode

_ASKS = frozenset({torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default})

_MOST = 100_000
"""Answers after which it is taken for a loop without end."""


class AnyValue(TorchDispatchMode):
    """`item()` of a fake tensor returns some number: initial values and step sizes have no influence on memory.

    Yes and no alternate, so that a loop which draws anew until all is well comes to its end.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            self._answers += 1
            if func not in _ASKS or self._answers > _MOST:
                raise
            if args[0].dtype == torch.bool:
                return self._answers % 2 == 1
            # Within what a probability or a rate may be.
            return 0.5 if args[0].is_floating_point() else 1
