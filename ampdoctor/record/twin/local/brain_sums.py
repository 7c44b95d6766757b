"""What a + b of two BF16 tensors absorbs and cancels, counted on the CPU in integers of 16 bits.

That is exact. Where a sum is cancelled, a and -b lie within a factor of two of each other, and such a difference is a
number of the operands' own format (Sterbenz): what has been rounded to BF16 still tells which sums were. And a sum that
rounds to a finite `a` is finite itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ampdoctor.record.twin.local import bits

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

_INFINITY = 0xFF00
"""Its bits, the sign shifted out."""

_BINADE = 0x0100
"""What the bits of a number differ by from those of its double."""

_CANCELS = 5 * _BINADE
"""A result is cancelled that is smaller than the larger operand by more than 2^5: 4 eps."""

_SMALLEST = _CANCELS + _BINADE
"""From it on, a 2^5th of a number is a normal number too."""


def counts(total: torch.Tensor, increment: torch.Tensor, result: torch.Tensor) -> tuple[int, int] | None:
    """Return how many elements are absorbed and how many cancelled; None where that takes more than 16 bits.

    Args:
        total: the first operand.
        increment: what is added to it or taken from it.
        result: the sum in FP32.
    """
    before, rounded = _bits(total), _bits(result.to(torch.bfloat16))
    size, moved = bits.doubled(before), bits.doubled(_bits(increment))
    same = before == rounded
    absorbed = int(np.count_nonzero(same))
    if absorbed:
        same &= moved != 0
        if size.max() >= _INFINITY:
            same &= size < _INFINITY
        absorbed = int(np.count_nonzero(same))
    larger = np.maximum(size, moved, out=moved)
    if larger.min() < _SMALLEST:
        tiny = np.count_nonzero(larger < _SMALLEST)
        if tiny != larger.size - np.count_nonzero(larger):
            return None
    # What is zero is taken below by one to the largest integer, as is the bound of two zeros.
    left = np.add(rounded, rounded, out=rounded).view(np.uint16)
    left -= np.uint16(1)
    larger -= np.uint16(_CANCELS + 1)
    return absorbed, int(np.count_nonzero(np.less(left, larger, out=same)))


def _bits(values: torch.Tensor) -> NDArray[Any]:
    return bits.integers(values.reshape(-1))
