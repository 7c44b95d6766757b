"""Reads the file of an offline W&B run: a log in the format of LevelDB, with one protobuf record an entry."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 32768
IDENT = 7
HEADER = struct.Struct("<IHB")
FIRST, MIDDLE = 2, 3


def records(file: Path, kind: type[Any]) -> Iterator[Any]:
    """Yield the records of the file, parsed as `kind`."""
    data, place, entry = file.read_bytes(), IDENT, b""
    while place + HEADER.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER.size:
            place += left
            continue
        _, length, part = HEADER.unpack_from(data, place)
        place += HEADER.size
        entry += data[place : place + length]
        place += length
        if part not in {FIRST, MIDDLE}:
            yield kind.FromString(entry)
            entry = b""


def items(record: Any) -> dict[str, Any]:
    """Return the items of a history or summary record by key."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record}
