"""The storages of one step: when each came to be and when it went, so that any moment can be looked at afterwards.

Memory is counted by storage: views of one take nothing more. What a storage was for shows late (a result turns out to
be a gradient, or to be kept for the backward pass), so moments are counted up only once the step is over.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.record.tensors import dtype_name
from ampdoctor.record.twin.twin import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

CUDA_BLOCK = 512
"""Bytes that torch's CUDA allocator rounds each request up to."""


class Label(NamedTuple):
    """What a storage is for.

    Attributes:
        component: weights, gradients, activations and so on (the table `memory`).
        kind: which optimizer state it is, or the operation that made it.
        module: path of the module in whose call it was made.
        dtype: name of the dtype that it was first seen with.
        device: kind of device and its number, `cuda:0`.
    """

    component: str
    kind: str | None
    module: str | None
    dtype: str
    device: str


class Held(NamedTuple):
    """What lives at one moment under one label."""

    bytes: int
    storages: int


Moment = dict[Label, Held]


class Storages:
    """Those that were met in one step, with what became of them.

    Args:
        block: bytes that each request is rounded up to; None to go by the device of each.

    Attributes:
        labels: what each is for, by its number.
    """

    def __init__(self, block: int | None = None) -> None:
        self.labels: list[Label] = []
        self._block = block
        self._bytes: list[int] = []
        self._by_hand: set[int] = set()
        self._events: list[tuple[int, int]] = []  # number, bytes more or less
        self._alive: dict[int, tuple[Watch, int]] = {}
        self._dead: deque[Watch] = deque()
        self._held: Counter[str] = Counter()
        self._counted = 0  # events in it

    def meet(self, tensor: torch.Tensor, component: str, kind: str | None, module: str | None) -> int | None:
        """Return the number of the tensor's storage, which is new where it was not met before; None without one."""
        storage = storage_of(tensor)
        if storage is None:
            return None
        self.bury()
        key = storage._cdata
        known = self._alive.get(key)
        size = self._size(storage, tensor)
        if known is not None and known[0]() is storage:
            if known[1] not in self._by_hand:
                self._resize(known[1], size)
            return known[1]
        number = len(self.labels)
        self.labels.append(Label(component, kind, module, dtype_name(tensor.dtype), str(tensor.device)))
        self._bytes.append(size)
        self._events.append((number, size))
        self._alive[key] = Watch(storage, self._dead.append, key), number
        return number

    def bury(self) -> None:
        """Note which storages have gone since the last look."""
        while self._dead:
            watch = self._dead.popleft()
            known = self._alive.get(watch.key)
            if known is not None and known[0] is watch:
                del self._alive[watch.key]
                self._events.append((known[1], -self._bytes[known[1]]))

    def now(self) -> int:
        """Return the present moment, for `at`."""
        self.bury()
        return len(self._events)

    def held(self) -> dict[str, int]:
        """Return by device the bytes that live now."""
        for number, change in self._events[self._counted :]:
            self._held[self.labels[number].device] += change
        self._counted = len(self._events)
        return self._held

    def relabel(self, number: int, component: str, kind: str | None = None) -> None:
        """Say what a storage is for that nothing was known of but who made it."""
        label = self.labels[number]
        if label.component == TEMPORARY:
            self.labels[number] = label._replace(component=component, kind=kind or label.kind)

    def note(self, number: int, note: str) -> None:
        """Add to the kind of a storage, once."""
        label = self.labels[number]
        if not (label.kind or "").endswith(note):
            self.labels[number] = label._replace(kind=f"{label.kind} {note}")

    def at(self, moment: int) -> Moment:
        """Return what lived at a moment (`now`)."""
        return _summed(self.labels, self._events[:moment])

    def peaks(self, begin: int = 0, end: int | None = None) -> dict[str, int]:
        """Return by device the moment, from `begin` to `end`, at which most bytes lived."""
        held: Counter[str] = Counter()
        most: dict[str, tuple[int, int]] = {}
        for moment, (number, change) in enumerate(self._events[:end], 1):
            device = self.labels[number].device
            held[device] += change
            if moment >= begin and held[device] > most.get(device, (-1, 0))[0]:
                most[device] = held[device], moment
        return {device: moment for device, (_, moment) in most.items()}

    def release(self) -> None:
        """Watch no longer."""
        self._alive.clear()
        self._dead.clear()

    def resize(self, number: int, size: int) -> None:
        """A storage takes so many bytes from now on, whatever it says itself: weights that are spread over ranks."""
        self._by_hand.add(number)
        self._resize(number, size)

    def _resize(self, number: int, size: int) -> None:
        if size != self._bytes[number]:
            self._events.append((number, size - self._bytes[number]))
            self._bytes[number] = size

    def _size(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> int:
        block = self._block or (CUDA_BLOCK if tensor.device.type == "cuda" else 1)
        return -(-storage.nbytes() // block) * block


TEMPORARY = "temporary"
"""The component of what has not turned out to be anything else."""


def _summed(labels: list[Label], events: list[tuple[int, int]]) -> Moment:
    sizes: dict[int, int] = {}
    for number, change in events:
        sizes[number] = sizes.get(number, 0) + change
    found: dict[Label, list[int]] = {}
    for number, size in sizes.items():
        if size:
            found.setdefault(labels[number], []).append(size)
    return {label: Held(sum(several), len(several)) for label, several in found.items()}


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None where it has none of its own."""
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse, or of a class that holds no storage of its own
        return None


def totals(moment: Moment) -> Iterator[tuple[str, int]]:
    """Yield each device with the bytes that live on it."""
    found: Counter[str] = Counter()
    for label, held in moment.items():
        found[label.device] += held.bytes
    yield from found.items()
