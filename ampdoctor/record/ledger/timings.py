"""How long each operation of a step takes, added up by where it is and in which dtypes it computes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ampdoctor.record.ledger.alignment import misaligned
from ampdoctor.record.ledger.autocast import AutocastState
from ampdoctor.record.tensors import dtype_name
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.twin.operations import Operation


class Work(NamedTuple):
    """Operations that are counted together.

    Attributes:
        module: path of the innermost module.
        op: name of the operation.
        direction: forward, backward or step (what the optimizer does).
        dtype_in: of its first floating-point argument.
        dtype_out: of its first floating-point result.
        autocast: dtype that autocast was on for.
    """

    module: str | None
    op: str
    direction: str
    dtype_in: str | None
    dtype_out: str | None
    autocast: str | None


@dataclass
class Total:
    """What the operations of one kind came to.

    Attributes:
        calls: how many there were.
        host_s: seconds on the host.
        numel: elements of their results.
        misaligned: calls of matrix products and convolutions whose sizes are no multiples of 8.
        events: pairs of CUDA events around each.
    """

    calls: int = 0
    host_s: float = 0.0
    numel: int = 0
    misaligned: int = 0
    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def device_ms(self) -> float | None:
        """Return the milliseconds on the device, where there are any and all is done."""
        if not self.events or not all(event.query() for pair in self.events for event in pair):
            return None
        return float(sum(before.elapsed_time(after) for before, after in self.events))


class Timings:
    """The totals of one step.

    Attributes:
        totals: by kind of work.
        autocast: whether autocast is on.
        stepping: the optimizer's operations are under way.
    """

    def __init__(self) -> None:
        self.totals: dict[Work, Total] = {}
        self.autocast = AutocastState()
        self.stepping = False

    def begin(self, operation: Operation) -> Callable[[Any], None]:
        """An operation is about to run; returns what to call with its result."""
        devices = [t.device for t in operation.tensors]
        cuda = next((device for device in devices if device.type == "cuda"), None)
        autocast = self.autocast.of_operation(cuda.type if cuda else devices[0].type if devices else "cpu")
        before = _event(cuda) if cuda else None
        began = time.perf_counter()

        def done(result: Any) -> None:
            seconds = time.perf_counter() - began
            outputs = list(tensors_of(result))
            total = self.totals.setdefault(self._work(operation, outputs, autocast), Total())
            total.calls += 1
            total.host_s += seconds
            total.numel += sum(t.numel() for t in outputs)
            total.misaligned += misaligned(operation.traits.name, operation.args)
            if before is not None and cuda is not None:
                total.events.append((before, _event(cuda)))

        return done

    def _work(self, operation: Operation, outputs: list[torch.Tensor], autocast: str | None) -> Work:
        place = operation.place
        direction = "step" if self.stepping else "backward" if place.backward else "forward"
        ins, outs = _dtype(operation.tensors), _dtype(outputs)
        return Work(place.module, operation.traits.name, direction, ins, outs, autocast)


def _event(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _dtype(tensors: list[torch.Tensor]) -> str | None:
    return next((dtype_name(t.dtype) for t in tensors if t.is_floating_point()), None)
