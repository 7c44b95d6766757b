"""From the arguments of the run's operation to those of its twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.device_asserts import Checks, fatal, of_the_run
from ampdoctor.record.twin.geometry import small_part
from ampdoctor.record.twin.kinds import check, has_memory, with_values
from ampdoctor.record.twin.operations import tensors_of
from ampdoctor.record.twin.storages import NotTwinnable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from ampdoctor.record.twin.operations import Operation
    from ampdoctor.record.twin.storages import TwinStorages
    from ampdoctor.record.twin.twin import Twin


class Conversion:
    """Converts for one twin.

    Args:
        storages: the twins.
        not_twinned: where to name what follows the run.
        any_island: some modules are kept in FP32.
    """

    def __init__(self, storages: TwinStorages, not_twinned: Counter[str], *, any_island: bool) -> None:
        self._storages, self._not_twinned, self._any_island = storages, not_twinned, any_island

    def of(self, operation: Operation, half: torch.dtype) -> Callable[[Any, bool], Any]:
        """Return what makes arguments of the run those of the twin.

        Raises:
            NotTwinnable: the operation can't be given others than the run's.
        """
        traits = operation.traits
        tensors = [*tensors_of((*operation.args, *operation.kwargs.values()))]
        halves = {t.element_size() for t in tensors if t.dtype in HALVES}
        if traits.own_layout and halves - {half.itemsize}:
            raise NotTwinnable("its weights lie in memory in another way at another width")
        if traits.checks is Checks.NOTHING or not any(fatal(t.device) for t in tensors):
            return lambda value, written: self.twin(value, written, half)
        if traits.checks is Checks.VALUES:
            raise NotTwinnable("could stop the device")
        return lambda value, written: self._checked(operation, value, written, half)

    def _checked(self, operation: Operation, value: Any, written: bool, half: torch.dtype) -> Any:
        """Return an argument of an operation in which an index of a twin's could stop the device."""
        if isinstance(value, torch.Tensor) and has_memory(value):
            twin = self._storages.of(value)
            if not written and of_the_run(value, operation.traits.checks):
                if twin is not None:
                    name = f"{operation.traits.name}: indices of the run, as others could stop the device"
                    self._not_twinned[name] += 1
                return value
            if twin is not None and twin.verbatim is not None:
                raise NotTwinnable("could stop the device")
        return self.twin(value, written, half)

    def twin(self, value: Any, written: bool, half: torch.dtype) -> Any:
        """Return an argument as the twin's operation is given it."""
        if isinstance(value, torch.dtype):
            return half if value in HALVES else value
        if value._is_zerotensor():
            return _cast(value, half)
        if value.layout is torch.sparse_coo and not written:
            return with_values(value, self.twin(value._values(), False, half))
        check(value)
        twin = self._storages.of(value)
        if twin is None and not written:
            same = value.dtype not in HALVES or value.dtype is half
            if same or small_part(value):
                return _cast(value, half)
        return self._laid_over(value, twin, written, half)

    def _laid_over(self, value: torch.Tensor, twin: Twin | None, written: bool, half: torch.dtype) -> torch.Tensor:
        if twin is None:
            twin = self._storages.copy_of(value, half)
        elif written and self._any_island and value.dtype in HALVES:
            twin = self._storages.recast(value, twin, half)  # as for what is read at a border, below
        view = self._storages.view(value, twin)
        # At the border of a module kept in FP32, what is handed on is cast where it is used.
        if value.dtype in HALVES and view.dtype is not half and not written and view.is_floating_point():
            return view.to(half)
        return view


def _cast(tensor: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    return tensor.to(half) if tensor.dtype in HALVES else tensor
