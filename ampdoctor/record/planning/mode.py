"""Shows every operation of a planned step to its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from ampdoctor.record.twin.called import called
from ampdoctor.record.twin.operations import Operation, traits_of
from ampdoctor.record.twin.place import NOWHERE, Place

if TYPE_CHECKING:
    from ampdoctor.record.ledger.ledger import Ledger

_PLACE = Place(None, False, NOWHERE)


class PlanMode(TorchDispatchMode):
    """Lies above the mode that makes tensors fake, and so sees what the model calls.

    Args:
        ledger: the ledger of the step.
    """

    supports_higher_order_operators = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = ledger

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "namespace", "aten") in {"prim", "profiler"}:
            return func(*args, **kwargs)  # asks for a tensor's device, marks a stretch of time
        after = self._ledger.before(Operation(func, args, kwargs, traits_of(func), _PLACE))
        result = called(func, args, kwargs)
        after(result)
        return result
