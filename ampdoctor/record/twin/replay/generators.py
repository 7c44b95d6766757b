"""Generators of random numbers and arrays of numpy that modules hold, with what puts their state back."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def generator(value: Any, kind: type) -> Callable[[], object] | None:
    """Return what puts `value` back; None where it is neither a generator of random numbers nor an array."""
    if issubclass(kind, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
        python = random.Random.getstate(value)
        return lambda: random.Random.setstate(value, python)
    return _of_numpy(value, kind) if "numpy" in sys.modules else None


def _of_numpy(value: Any, kind: type) -> Callable[[], object] | None:
    numpy: Any = sys.modules["numpy"]
    draws = getattr(numpy, "random", None)
    if kind is numpy.ndarray and not value.dtype.hasobject:
        before = value.copy()
        return lambda: _put_array(value, before)
    if draws is None:
        return None
    if issubclass(kind, draws.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    bits = value.bit_generator if issubclass(kind, draws.Generator) else value
    if isinstance(bits, draws.BitGenerator):
        held = bits.state
        return lambda: setattr(bits, "state", held)
    return None


def _put_array(array: Any, before: Any) -> None:
    if array.tobytes() != before.tobytes():
        array[...] = before
