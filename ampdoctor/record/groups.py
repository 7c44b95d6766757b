"""What an optimizer trains, asked so that an optimizer of any making can answer."""

from __future__ import annotations

from inspect import GEN_CREATED, getgeneratorstate
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """Return the parameter groups; a wrapper that only forwards `step` has none."""
    try:
        groups = list(optimizer.param_groups)
    except Exception:  # noqa: BLE001 - it may be the user's property
        return []
    return [group for group in groups if isinstance(group, dict) and "params" in group]


def parameters_of(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yield the parameters of all groups."""
    for group in groups_of(optimizer):
        yield from group["params"]


def state_of(optimizer: Any, parameter: torch.Tensor) -> dict[Any, Any]:
    """Return the optimizer's state of a parameter where that is a dict, as usual."""
    state = getattr(optimizer, "state", None)
    found = state.get(parameter) if isinstance(state, dict) else None
    return found if isinstance(found, dict) else {}


def given_parameters(parameters: Any) -> Any:
    """Return what can be looked at in the argument of a clipping function.

    A generator is the user's to consume. Where it is that of `module.parameters()`, its module can be asked anew.
    """
    if type(parameters) is GeneratorType:
        started = getgeneratorstate(parameters) != GEN_CREATED
        if started or parameters.gi_code is not nn.Module.parameters.__code__:
            return ()
        frame = parameters.gi_frame
        given = frame.f_locals if frame is not None else {}
        return list(nn.Module.parameters(given["self"], given["recurse"]))
    return () if hasattr(type(parameters), "__next__") else parameters
