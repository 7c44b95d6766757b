from collections.abc import Iterator
from typing import Any

def compare(
    kind: int, data: int, twin: int, numel: int, threads: int, edge: float, edge_of_twin: float, out: int, /
) -> None: ...
def copy(tensors: int, count: int, copy: int, /) -> None: ...
def describe(
    tensors: list[Any], classes: tuple[Any, ...], dtypes: tuple[Any, ...], strided: Any, places: int, /
) -> int: ...
def finite(tensors: int, count: int, /) -> bool: ...
def measure(tensors: int, count: int, threads: int, rows: int, starts: int, bins: int, used: int, /) -> int: ...
def note(
    places: int,
    tensors: list[Any],
    sites: list[Any],
    contexts: list[Any],
    dtypes: tuple[str, ...],
    micro_batch: int,
    order: Iterator[int],
    known: list[Any],
    seen: dict[int, Any],
    first: int,
    /,
) -> None: ...
def subtract(tensors: int, count: int, copy: int, /) -> None: ...
