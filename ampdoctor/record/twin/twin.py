"""The twin of one storage, and who watches that storage."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ampdoctor.record.twin.geometry import Geometry


class Watch(weakref.ref[Any]):
    """Watches a storage.

    What is called when it dies is a method of a deque's: code in Python would run in the middle of the user's, where
    a Ctrl-C that arrives during it is swallowed.

    Args:
        of: the storage.
        died: called with the watch.
        key: address of the storage.
    """

    __slots__ = ("key",)

    def __new__(cls, of: Any, died: Any, key: int) -> Watch:  # noqa: ARG004, D102, PYI034
        return super().__new__(cls, of, died)

    def __init__(self, of: Any, died: Any, key: int) -> None:
        super().__init__(of, died)  # type: ignore[call-arg]
        self.key = key


@dataclass(eq=False)
class Twin:
    """The twin of one storage.

    Attributes:
        of: the storage itself, weakly.
        storage: its values in the twin's world.
        dtype: dtype of the values that are half in the run.
        narrow: bytes of an element in the run.
        wide: bytes of an element of the twin.
        borrowed: `storage` belongs to somebody else and is copied before it is written to.
        verbatim: the twin as it is, where its shape is another than the run's (what was chosen by value).
        place: shape, stride and offset of the run's tensor that `verbatim` is the twin of.
        stream: the CUDA stream that `storage` was allocated on.
    """

    of: weakref.ref[Any]
    storage: Any
    dtype: torch.dtype
    narrow: int
    wide: int
    borrowed: bool = False
    verbatim: torch.Tensor | None = None
    place: Geometry | None = None
    stream: Any = None
