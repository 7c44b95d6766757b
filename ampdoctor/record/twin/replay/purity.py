"""Whether a forward does nothing but calculate: only such a one may run a second time unasked.

What modules hold, tensors and the generators that torch, Python and numpy own are put back after a replay. Anything
else that a forward reaches is not: a line that is printed comes out twice, a count goes up twice, a queue is one
further on. So the source of all that a forward runs is read, with the objects as they stand now, without running any
of it. What is not understood counts as an effect.

Arguments are taken to be tensors, and containers of Python's that hold them: their methods are known by name alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.twin.replay.purity_run import Run
from ampdoctor.record.twin.replay.purity_values import At, EffectError
from ampdoctor.record.twin.replay.roots import modules_below

if TYPE_CHECKING:
    from torch import nn

    from ampdoctor.record.twin.replay.purity_values import Value

_PASSES = 5


def effect(module: nn.Module) -> str | None:
    """Return what the forward of `module`, or of a module below it, does apart from calculating; None where nothing.

    Nothing of the user's is run, and nothing is raised.
    """
    try:
        return _effect(module)
    except EffectError as error:
        return str(error)
    except RecursionError:
        return "it calls too deep to be read"
    except Exception as error:  # noqa: BLE001 - what can't be read has an effect, for all that is known
        return f"it can't be read: {type(error).__name__}: {error}"


def _effect(root: nn.Module) -> str | None:
    # What it stores may be read before the line that stores it, in the next step: until nothing more is stored.
    stored: dict[str | int, Value] = {}
    for _ in range(_PASSES):
        before = dict(stored)
        run = Run(stored)
        for module in modules_below(root):
            run.module(module, At(type(module).__name__, 0))
        if stored == before:
            return None
    return "what it stores in attributes is too tangled to be followed"
