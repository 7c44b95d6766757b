"""How long the step's modules take in other precisions: executed again under another autocast, and timed.

Only the precision differs: inputs, weights and random numbers are the step's own. What comes out is not looked at, and
the backward pass starts from ones, since how long it takes does not depend on the values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn

from ampdoctor.record.guard import told
from ampdoctor.record.headroom import room
from ampdoctor.record.ledger.saved import kept_bytes, saved_tensors
from ampdoctor.record.tensors import HALVES, dtype_name
from ampdoctor.record.twin.replay.again import as_in_training, executable
from ampdoctor.record.twin.replay.root_call import handed_in, outputs_of, takes_gradients
from ampdoctor.record.twin.replay.roots import trained
from ampdoctor.record.twin.replay.surroundings import Autocast
from ampdoctor.record.twin.replay.untouched import NotRestorableError, Untouched
from ampdoctor.trace.schema import PaceRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.record.twin.replay.kept import RootCalls
    from ampdoctor.record.twin.replay.root_call import RootCall

SETTINGS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Autocast's dtype of each setting; None for autocast off."""

_LARGEST = 2.5
"""Times what a half run keeps for the backward pass: FP32 takes twice as much, and gradients come to it."""

ROUNDS = 3
"""Each setting is timed so often, in turn, after one round that is not counted."""


@dataclass
class Paces:
    """What was measured.

    Attributes:
        own: the setting that the run itself is in, where it is one of them.
        device: kind of device.
        milliseconds: of forward and backward, by setting, a number a round.
        kept: bytes that the forward pass keeps for the backward pass, by setting, half copies of weights included.
        declined: why there is none, or why a setting is missing.
    """

    own: str | None = None
    device: str = ""
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)


def paces(kept: RootCalls, *, hooks_too: bool) -> Paces:
    """Time the step that `kept` holds in each setting, and leave everything as it was.

    Args:
        kept: the step; its weights have not been changed yet.
        hooks_too: let hooks of the user's run once more; else such a step is declined.
    """
    chosen = executable(kept, hooks_too=hooks_too)
    found = Paces(declined=[chosen.declined] if chosen.declined is not None else [])
    modules = [m for call in chosen.calls if (m := call.root.module()) is not None]
    weights = [weight for module in modules for weight in trained(module)]
    if found.declined or not weights:
        return found
    if any(weight.dtype in HALVES for weight in weights):
        found.declined.append("the weights are in half: autocast would not make FP32 of them")
        return found
    found.device = weights[0].device.type
    found.own = _own(chosen.calls[0].autocast, found.device)
    kept.replaying = True
    try:
        with Untouched(modules), as_in_training():
            _measure(found, chosen.calls, weights)
    except NotRestorableError as error:
        found.declined.append(str(error))
    except Exception as error:  # noqa: BLE001 - too little memory for a copy of the weights, for instance
        found.declined.append(told(error))
    finally:
        kept.replaying = False
    return found


def pace_rows(found: Paces, step: int) -> Iterator[PaceRow]:
    """Yield a row for each setting, or one that says why there is none."""
    declined = "; ".join(found.declined) or None
    for name in SETTINGS:
        times = found.milliseconds.get(name)
        if not times:
            continue
        yield PaceRow(
            step=step, setting=name, own=name == found.own, device=found.device, wall_ms=median(times),
            fastest_ms=min(times), slowest_ms=max(times), rounds=len(times), kept_bytes=found.kept[name],
            declined=declined,
        )  # fmt: skip
    if not found.milliseconds and declined is not None:
        yield PaceRow(step=step, setting="none", own=False, device=found.device, rounds=0, declined=declined)


def _measure(found: Paces, calls: Sequence[RootCall], weights: Sequence[nn.Parameter]) -> None:
    # The run's own first: what it keeps says whether there is room for more.
    left = dict(sorted(SETTINGS.items(), key=lambda item: item[0] != found.own))
    for number in range(ROUNDS + 1):
        for name, dtype in [*left.items()]:
            autocast = Autocast(() if dtype is None else ((found.device, dtype),), cache=True)
            try:
                if not number:
                    _check_room(found)
                    found.kept[name] = max(_kept(call, autocast) for call in calls)
                seconds = _timed(calls, weights, autocast, found.device)
            except Exception as error:  # noqa: BLE001 - the user's code in a precision it was not written for
                del left[name]
                found.milliseconds.pop(name, None)
                found.kept.pop(name, None)
                found.declined.append(f"{name}: {told(error)}")
                continue
            if number:
                found.milliseconds.setdefault(name, []).append(1e3 * seconds)


def _check_room(found: Paces) -> None:
    """Ask whether what FP32 keeps fits.

    Raises:
        MemoryError: there is too little beside the training's own.
    """
    if found.kept and _LARGEST * max(found.kept.values()) > room(torch.device(found.device)):
        raise MemoryError("too little free memory to execute the step again")


def _timed(calls: Sequence[RootCall], weights: Sequence[nn.Parameter], autocast: Autocast, device: str) -> float:
    """Return the seconds of forward and backward; one call after another, for a step may have many micro-batches."""
    _wait(device)
    began = time.perf_counter()
    for call in calls:
        outputs = _outputs(call, autocast)
        if outputs:
            torch.autograd.grad(outputs, weights, [torch.ones_like(t) for t in outputs], allow_unused=True)
    _wait(device)
    return time.perf_counter() - began


def _kept(call: RootCall, autocast: Autocast) -> int:
    """Return the bytes that one call keeps for the backward pass.

    Raises:
        ValueError: it computes in half although autocast is off around it.
    """
    outputs, module = _outputs(call, autocast), call.root.module()
    if not autocast.dtypes and any(t.dtype in HALVES for t in saved_tensors(outputs)):
        raise ValueError("the model casts to half by itself: it is not FP32 without autocast around it")
    held = [] if module is None else [*nn.Module.parameters(module), *nn.Module.buffers(module)]
    return kept_bytes(outputs, held)


def _outputs(call: RootCall, autocast: Autocast) -> list[torch.Tensor]:
    """Execute one call and return the outputs that gradients come back to."""
    module = call.root.module()
    if module is None:
        return []
    args, kwargs = handed_in((call.args, call.kwargs), partial(_given, call, wide=not autocast.dtypes))
    call.randomness.put_back()
    with autocast.in_force():
        return [t for t in outputs_of(module(*args, **kwargs)) if takes_gradients(t)]


def _given(call: RootCall, tensor: torch.Tensor, *, wide: bool) -> torch.Tensor:
    """Return an input: what another call has made in half would have come in FP32 without autocast."""
    return tensor.float() if wide and tensor.dtype in HALVES and id(tensor) in call.links else tensor


def _own(autocast: Autocast, device: str) -> str | None:
    dtype = dict(autocast.dtypes).get(device)
    return next((name for name, of in SETTINGS.items() if of == dtype), None if dtype is None else dtype_name(dtype))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
