"""Keeps the ledger of one step as its operations run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.headroom import cuda_in_use
from ampdoctor.record.ledger.allocator import allocator_now
from ampdoctor.record.ledger.saved import saved_tensors
from ampdoctor.record.ledger.storages import TEMPORARY, Storages
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampdoctor.record.ledger.holdings import Holding, Holdings
    from ampdoctor.record.ledger.timings import Timings
    from ampdoctor.record.twin.operations import Operation

_CASTS = frozenset({"aten._to_copy", "aten.to"})


class Mark(NamedTuple):
    """A moment of the step that has a name: `forward` is when its backward pass begins, and so on.

    Attributes:
        phase: its name.
        moment: for `Storages.at`.
        allocator: what torch's CUDA allocator had given out and reserved then, by device.
    """

    phase: str
    moment: int
    allocator: dict[int, tuple[int, int]]


class Ledger:
    """Follows the operations of one step (`record.twin.mode.Follower`).

    Args:
        holdings: what the training holds.
        timings: takes the time of each operation; None where there is none to take, as of a step that is only planned.
        block: bytes that the allocator rounds requests up to; None to go by the device of each.

    Attributes:
        storages: what lived when.
        marks: the named moments so far.
        casts: by the number of a storage that a cast made, that of the storage it is a copy of.
        allocated: what torch's CUDA allocator had given out when most bytes lived, by device.
    """

    def __init__(self, holdings: Holdings, timings: Timings | None, block: int | None = None) -> None:
        self.storages = Storages(block)
        self.marks: list[Mark] = []
        self.not_twinned: Counter[str] = Counter()
        self._holdings, self.timings = holdings, timings
        self._weights: set[int] = set()
        self.casts: dict[int, int] = {}
        self.allocated: dict[str, int] = {}
        self._most: dict[str, int] = {}

    def begin(self, others: Iterable[torch.Tensor] = ()) -> None:
        """Take stock; `others` are tensors that are there besides what the training holds."""
        for holding in self._holdings.standing():
            number = self._meet(holding)
            if number is not None and holding.component == "weights":
                self._weights.add(number)
        self._meet_what_comes_and_goes()
        for tensor in others:
            self.storages.meet(tensor, "other", None, None)

    def before(self, operation: Operation) -> Callable[[Any], None]:
        """An operation is about to run; returns what to call with its result."""
        self.storages.bury()
        done = self.timings.begin(operation) if self.timings is not None else None

        def after(result: Any) -> None:
            if done is not None:
                done(result)
            source = self._source_of_cast(operation)
            component = "autocast_cache" if source in self._weights else TEMPORARY
            for tensor in tensors_of(result):
                number = self.storages.meet(tensor, component, operation.traits.name, operation.place.module)
                if number is not None and source is not None and source != number:
                    self.casts[number] = source
            if self.timings is not None:
                self._ask_allocator()

        return after

    def _ask_allocator(self) -> None:
        """Note what it says whenever more lives than before: its own peak may be of an earlier step."""
        for device, held in self.storages.held().items():
            if held > self._most.get(device, 0) and device.startswith("cuda"):
                self._most[device] = held
                self.allocated[device] = torch.cuda.memory_allocated(device)

    def backward_begins(self, roots: Iterable[torch.Tensor]) -> None:
        """A backward pass is about to run: what its graph keeps are the activations."""
        for tensor in saved_tensors(roots):
            number = self.storages.meet(tensor, TEMPORARY, None, None)
            if number is not None:
                self.storages.relabel(number, "activations")
        self.mark("forward")

    def optimizer_begins(self) -> None:
        """The backward passes are over."""
        for holding in self._holdings.gradients():
            self._meet(holding)
        self.mark("backward")

    def end(self) -> None:
        """The step is over."""
        self._meet_what_comes_and_goes()
        self.mark("step")
        self.storages.release()

    def mark(self, phase: str) -> None:
        """Give the present moment a name."""
        asked = self.timings is not None and cuda_in_use()
        self.marks.append(Mark(phase, self.storages.now(), allocator_now() if asked else {}))

    def _meet_what_comes_and_goes(self) -> None:
        for holding in (*self._holdings.gradients(), *self._holdings.states()):
            self._meet(holding)

    def _meet(self, holding: Holding) -> int | None:
        number = self.storages.meet(*holding)
        if number is not None:
            self.storages.relabel(number, holding.component, holding.kind)
        return number

    def _source_of_cast(self, operation: Operation) -> int | None:
        """Return the number of the storage that the operation copies in another dtype; None where it does not."""
        if operation.traits.name not in _CASTS:
            return None
        source = next(tensors_of(operation.args), None)
        return None if source is None else self.storages.meet(source, TEMPORARY, None, None)
