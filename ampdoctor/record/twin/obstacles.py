"""Why a step gets no second opinion, in words that go into the trace."""

from __future__ import annotations

import torch

from ampdoctor.record.headroom import device_in_use
from ampdoctor.record.twin.eager import cannot_set_aside, compiles

TRIED = frozenset({"cpu"})
"""Kinds of device on which twins have been run for real. On others they are there on request."""

ON_REQUEST = "`ampdoctor run --prove` and recorder.prove() give it all the same"


def several_ranks() -> bool:
    """Whether more than one process trains."""
    distributed = torch.distributed
    together = distributed.is_available() and distributed.is_initialized()
    return bool(together and distributed.get_world_size() > 1)


def untried() -> str | None:
    """Return the kind of the device in use where twins have never run on one, None else."""
    device = device_in_use()
    return None if device.type in TRIED else device.type


def obstacle(*, asked: bool) -> str | None:
    """Return what keeps a step from getting a second opinion; None where nothing does.

    Args:
        asked: the user has asked for it.
    """
    if several_ranks():
        return "the run has several ranks, whose gradients are added up outside of what twins see"
    stays_compiled = cannot_set_aside()
    if asked or stays_compiled is not None:
        return stays_compiled
    device = untried()
    if device is not None:
        return f"twins have not been tried on {device} yet: {ON_REQUEST}"
    if compiles():
        return (
            "the model is compiled, and operations show only in a step that runs eagerly, with other last digits and "
            f"other random draws than compiled code: {ON_REQUEST}"
        )
    return None
