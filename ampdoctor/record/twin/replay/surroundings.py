"""What a call of a module depends on besides its inputs and its weights: random numbers and autocast."""

from __future__ import annotations

import contextlib
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import cuda_in_use

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON, NUMPY = "random", "numpy"
"""Generators outside torch. Looking at them costs more than all else, so it is done where a call draws from them."""

HOSTS = frozenset({PYTHON, NUMPY})

_DEVICE_TYPES = ("cpu", "cuda")


@dataclass(frozen=True)
class Randomness:
    """The states of the global generators.

    Attributes:
        generators: torch's, with their states.
        hosts: those of `random` and numpy, by name.
    """

    generators: tuple[tuple[torch.Generator, torch.Tensor], ...]
    hosts: dict[str, Any]

    @classmethod
    def now(cls, hosts: frozenset[str] = HOSTS, devices: frozenset[torch.device] | None = None) -> Randomness:
        """Return the states as they are, of `hosts` those that are loaded, of `devices` and the present one, or all."""
        generators = [torch.default_generator, *_cuda_generators(devices)]
        return cls(tuple((g, g.get_state()) for g in generators), host_states(hosts))

    def put_back(self) -> None:
        """Let the generators draw the same once more."""
        for generator, state in self.generators:
            generator.set_state(state)
        if PYTHON in self.hosts:
            random.setstate(self.hosts[PYTHON])
        if NUMPY in self.hosts:
            sys.modules["numpy"].random.set_state(self.hosts[NUMPY])


def host_states(hosts: frozenset[str] = HOSTS) -> dict[str, Any]:
    """Return the states of `random` and numpy."""
    states: dict[str, Any] = {}
    if PYTHON in hosts:
        states[PYTHON] = random.getstate()
    if NUMPY in hosts and (numpy := sys.modules.get("numpy")) is not None:
        states[NUMPY] = numpy.random.get_state()
    return states


def drawn_between(before: dict[str, Any], after: dict[str, Any]) -> frozenset[str]:
    """Return the names of the generators whose states differ."""
    return frozenset(name for name in before if not _same_state(before[name], after.get(name, before[name])))


@dataclass(frozen=True)
class Autocast:
    """Autocast as it is in force.

    Attributes:
        dtypes: device types for which it is on, with its dtype.
        cache: casts of weights are kept.
    """

    dtypes: tuple[tuple[str, torch.dtype], ...]
    cache: bool

    @classmethod
    def now(cls) -> Autocast:
        """Return what is in force in this thread."""
        on = tuple((d, torch.get_autocast_dtype(d)) for d in _DEVICE_TYPES if torch.is_autocast_enabled(d))
        return cls(on, torch.is_autocast_cache_enabled())

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Put it in force where no autocast is."""
        with contextlib.ExitStack() as stack:
            for device_type, dtype in self.dtypes:
                stack.enter_context(torch.autocast(device_type, dtype=dtype, cache_enabled=self.cache))
            yield


def inside_autocast() -> bool:
    """Whether an autocast region is open, and with it perhaps a cache of casts that is somebody's."""
    torch.autocast_increment_nesting()
    return bool(torch.autocast_decrement_nesting())


def _cuda_generators(devices: frozenset[torch.device] | None) -> tuple[torch.Generator, ...]:
    if not cuda_in_use():
        return ()
    every: tuple[torch.Generator, ...] = tuple(torch.cuda.default_generators)
    if devices is None:
        return every
    present = torch.cuda.current_device()
    wanted = {device.index for device in devices if device.type == "cuda"} | {present}
    return tuple(generator for index, generator in enumerate(every) if index in wanted)


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_same_state(x, y) for x, y in zip(a, b, strict=True))
    same = a == b
    return bool(same.all()) if hasattr(same, "all") else bool(same)
