"""How much memory a card has."""

from __future__ import annotations

import re

from ampdoctor.errors import AmpDoctorError

_UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")

_GIB = 1 << 30

CARDS = {
    "t4": 16 * _GIB, "v100-16gb": 16 * _GIB, "v100-32gb": 32 * _GIB, "a10": 24 * _GIB, "a100-40gb": 40 * _GIB,
    "a100-80gb": 80 * _GIB, "l4": 24 * _GIB, "l40s": 48 * _GIB, "h100-80gb": 80 * _GIB, "h200": 141 * 10**9,
    "rtx3090": 24 * _GIB, "rtx4090": 24 * _GIB, "rtx5090": 32 * _GIB, "a6000": 48 * _GIB,
}  # fmt: skip
"""Bytes of the cards' memory, from NVIDIA's data sheets. Of the memory chips' 16, 24, 32 … gigabytes, powers of two,
drivers and error correction keep some: what a program can have is a few percent less."""


def card_bytes(text: str) -> int:
    """Return the bytes of memory that `text` says: a size such as `24GB` or `24GiB`, or the name of a card.

    Raises:
        AmpDoctorError: it is neither.
    """
    name = text.strip().lower()
    if name in CARDS:
        return CARDS[name]
    size = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(size[2].upper()) if size else None
    if size is None or unit is None or not (total := int(float(size[1]) * unit)):
        raise AmpDoctorError(
            f"{text!r} is no card and no size", hint="give a size such as 24GB or 24GiB, or one of " + ", ".join(CARDS)
        )
    return total
