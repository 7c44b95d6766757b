"""Gradients that have come back to outputs of root modules, before and after their cast to half.

Where nothing but the cast of one gradient has arrived, that one is kept alone and cast again.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.record.twin.replay.tensor_places import Kept, Lies, version_of

if TYPE_CHECKING:
    import torch


class Wide(NamedTuple):
    """A gradient before its cast, and where the cast has put its result."""

    kept: Kept
    result: Lies | None

    @classmethod
    def of(cls, gradient: torch.Tensor, result: torch.Tensor | None) -> Wide:
        """Keep `gradient`, which was cast to `result`."""
        return cls(Kept.of(gradient), None if result is None else Lies.of(result))

    def became(self, arrived: torch.Tensor) -> bool:
        """Whether `arrived` is the result of the cast and nothing else, maybe in another shape."""
        result = self.result
        return (
            result is not None
            and result.storage() is arrived.untyped_storage()
            and result.version == version_of(arrived)
            and (result.offset, result.numel) == (arrived.storage_offset(), arrived.numel())
            and result.contiguous
            and arrived.is_contiguous()
        )


class Cast(NamedTuple):
    """What was made of a wide gradient, to be made of it again."""

    wide: Kept
    dtype: torch.dtype
    shape: torch.Size
    narrow: weakref.ref[torch.Tensor]
    version: int | None

    @classmethod
    def of(cls, wide: Kept, narrow: torch.Tensor) -> Cast:
        """Describe `narrow`, which came of `wide`."""
        return cls(wide, narrow.dtype, narrow.shape, weakref.ref(narrow), version_of(narrow))

    @property
    def tensor(self) -> torch.Tensor:
        """What had arrived."""
        return self.wide.tensor.to(self.dtype).reshape(self.shape)

    @property
    def unchanged(self) -> bool:
        """Whether nobody has written to it since, as far as it still lives."""
        narrow = self.narrow()
        same = narrow is None or version_of(narrow) == self.version
        return same and self.wide.unchanged
