"""What is written to tensors without an operation of torch's that we see.

Kernels that are launched without the dispatcher (Triton's, cupy's, a C++ extension's) write mostly into tensors that
were just allocated. What such a tensor holds when it is first read is the run's in every world, and is said to be so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.quiet import in_backward
from ampdoctor.record.twin.blanks import Blanks
from ampdoctor.record.twin.kinds import dense, has_memory
from ampdoctor.record.twin.operations import Kind

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    import torch

    from ampdoctor.record.twin.operations import Operation
    from ampdoctor.record.twin.storages import TwinStorages


class Outside:
    """Watches the tensors of one twin for it.

    Args:
        storages: the twins.
        not_twinned: where to name what was found.

    Attributes:
        in_backward: something was found in a backward pass.
    """

    def __init__(self, storages: TwinStorages, not_twinned: Counter[str]) -> None:
        self._storages, self._not_twinned = storages, not_twinned
        self._blanks = Blanks()
        self.in_backward = False

    def allocated(self, tensor: torch.Tensor, maker: str) -> None:
        """The operation `maker` has made room for values."""
        self._blanks.add(tensor, maker)

    def read(self, tensor: torch.Tensor) -> None:
        """Somebody is about to look at `tensor`."""
        if len(self._blanks) and (maker := self._blanks.take(tensor)) is not None:
            self._written(tensor, maker)

    def touched(self, operation: Operation) -> None:
        """See what an operation, about to run, does with tensors that nothing seems to have written to."""
        traits = operation.traits
        if not len(self._blanks) or traits.kind in {Kind.VIEW, Kind.READ} or traits.allocates:
            return
        unread = traits.overwrites or traits.draws or traits.kind in {Kind.OPAQUE, Kind.DRAW}
        for n, value in [*enumerate(operation.args), *operation.kwargs.items()]:
            if n == 0 and operation.kwargs.get("beta") == 0:
                continue  # baddbmm into nothing
            for tensor in dense(value):
                if not has_memory(tensor) or not tensor.numel():
                    continue
                maker = self._blanks.take(tensor)
                if maker is not None and not (unread and n in traits.writes):
                    self._written(tensor, maker)

    def _written(self, tensor: torch.Tensor, maker: str) -> None:
        """From now on the run's values stand for the twin, until an operation writes others."""
        self._not_twinned[f"{maker}: written outside torch's operations"] += 1
        self.in_backward |= in_backward()
        self._storages.forget(tensor)

    def before_kernel(self, name: str, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
        """A kernel that torch does not know is about to be launched on `tensors`; returns what to call afterwards.

        Which of them it writes to shows by what has changed: there the run's values stand for the twin.
        """
        real = [t.detach() for t in tensors if has_memory(t)]
        known, floats = [], False
        for tensor in real:
            floats |= tensor.is_floating_point()
            self._storages.before_write(tensor)
            if self._blanks.take(tensor) is None and self._storages.of(tensor) is not None:
                known.append((tensor, tensor.clone()))

        def after() -> None:
            for tensor, before in known:
                self._storages.take_over_changed(tensor, before)
            if floats:
                self.in_backward |= in_backward()
                self._not_twinned[f"{name}: launched outside torch's operations"] += 1

        return after
