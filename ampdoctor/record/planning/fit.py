"""The largest batch that fits a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Peaks = dict[str, int]
    """The most bytes of each phase of a step."""

LARGEST = 1 << 20
"""Batches are not followed further."""

_LINES = 4
"""Lines that are tried before the answer is closed in on step by step."""


class Fit(NamedTuple):
    """An answer.

    Attributes:
        batch: the largest batch that fits, 0 where none does, at most LARGEST.
        affine: the line through the first two steps led there.
    """

    batch: int
    affine: bool


def largest_batch(peaks: Callable[[int], Peaks], batch: int, card_bytes: int) -> Fit:
    """Return the largest batch whose peak in each phase is within `card_bytes`.

    Each phase grows nearly evenly with the batch, and the whole peak does not: in the optimizer's step it is the same
    for all, until that of forward and backward is higher. So each phase has a line of its own, through the steps of
    `batch` and twice as many samples, and what the lines say is checked by a step of that size and one of a sample
    more. Where they miss, as where another module makes the peak in larger batches, later steps give nearer lines.
    """
    near, far = batch, 2 * batch
    guess = 1
    for attempt in range(_LINES):
        guess = min(_reach(peaks, near, far, phase, card_bytes) for phase in peaks(near))
        if _is_answer(peaks, guess, card_bytes):
            return Fit(guess, attempt == 0)
        if guess in {0, near, far}:
            break
        near, far = far, guess
    return Fit(_searched(peaks, card_bytes, guess or 1), False)


def _is_answer(peaks: Callable[[int], Peaks], batch: int, card_bytes: int) -> bool:
    fits = batch == 0 or _highest(peaks, batch) <= card_bytes
    return fits and (batch == LARGEST or _highest(peaks, batch + 1) > card_bytes)


def _reach(peaks: Callable[[int], Peaks], near: int, far: int, phase: str, card_bytes: int) -> int:
    """Return how many samples fit in a phase, by the line through two steps."""
    growth = (peaks(far)[phase] - peaks(near)[phase]) / (far - near)
    room = card_bytes - peaks(near)[phase]
    if growth <= 0:
        return LARGEST if room >= 0 else 0
    return max(0, min(LARGEST, int(room // growth) + near))


def _highest(peaks: Callable[[int], Peaks], batch: int) -> int:
    return max(peaks(batch).values())


def _searched(peaks: Callable[[int], Peaks], card_bytes: int, near: int) -> int:
    """Close in on the answer from both sides, beginning near a guess."""
    low, high, stride = 0, LARGEST + 1, 1
    batch = near
    while high - low > 1:
        if _highest(peaks, batch) <= card_bytes:
            low, ahead = batch, batch + stride
        else:
            high, ahead = batch, batch - stride
        # Strides double while one side is open; then the middle is next.
        open_side = low == 0 or high > LARGEST
        batch = ahead if open_side and low < ahead < high else (low + high) // 2
        stride *= 2
    return low
