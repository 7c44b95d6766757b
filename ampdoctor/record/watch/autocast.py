"""Watches `torch.autocast`: which blocks are entered, for which device, and whether torch lets them be."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autocast_blocks import Block
from ampdoctor.record.callsite import full_call_site, shortened
from ampdoctor.record.evaluations import Evaluations
from ampdoctor.record.quiet import in_backward
from ampdoctor.record.tensors import autocast_dtype, dtype_name
from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from types import FrameType

    from ampdoctor.record.call_log import CallLog
    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.patching import Patches
    from ampdoctor.record.state import State

_AUTOCAST = torch.amp.autocast_mode.autocast
_FRAMES = 4
"""Frames between the question whether CUDA is there and the `__init__` that asks it: wrappers of ours, and no more."""


class AutocastWatch(Watcher):
    """Queues a row for a block's begin and end: on an examined step, for the first block of each line.

    Of evaluations on other steps, for the first block of each line in the run.
    """

    def __init__(self, state: State, log: CallLog) -> None:
        super().__init__(state, log)
        self._refused: dict[int, weakref.ref[Any]] = {}
        self._step = -1
        self._told: set[tuple[Any, ...]] = set()
        self._evaluations = Evaluations(state)

    def install(self, patches: Patches) -> None:
        """Put its wrappers in place.

        The class's `__init__` is left alone: its warnings name the line of its caller, which would be ours.
        """
        entered = self._guarded(self._entered)
        left = self._guarded(self._left)
        state, may_look = self._state, self._evaluations.may_begin

        # What is asked first costs next to nothing: an evaluation may enter thousands of blocks on a step.
        def after_enter(made: Any, result: Any, error: BaseException | None) -> None:
            if not torch.compiler.is_compiling() and state.active and (state.log.examined or may_look()):
                entered(made, result, error)

        def after_exit(made: Any, result: Any, error: BaseException | None) -> None:
            if not torch.compiler.is_compiling() and state.blocks.depth:
                left(made, result, error)

        patches.around(_AUTOCAST, "__enter__", _itself, after_enter)
        patches.around(_AUTOCAST, "__exit__", _itself, after_exit)
        asked = self._guarded(self._asked_for_cuda)
        patches.around(torch.cuda.amp.common, "amp_definitely_not_available", _itself, asked)

    def remove(self) -> None:
        """Let go of what it holds."""
        self._refused.clear()

    def _asked_for_cuda(self, _: Any, missing: Any, error: BaseException | None) -> None:
        """`autocast.__init__` asks whether CUDA is there, in order to switch itself off where it is not."""
        if error is not None or not missing:
            return
        frame: FrameType | None = sys._getframe(1)
        for _frame in range(_FRAMES):
            if frame is None or frame.f_code is _AUTOCAST.__init__.__code__:
                break
            frame = frame.f_back
        else:
            return
        if frame is None or not frame.f_locals.get("enabled"):
            return
        made = frame.f_locals.get("self")
        self._refused[id(made)] = weakref.ref(made, self._forgetting(id(made)))

    def _forgetting(self, key: int) -> Any:
        return lambda _: self._refused.pop(key, None)

    def _entered(self, made: Any, _: Any, error: BaseException | None) -> None:
        if made is None or error is not None or in_backward():
            return
        block, site = Block(id(made)), full_call_site()
        if self._state.log.examined:
            self._evaluations.seen(site)
        elif not _keeps_copies(made) or not self._evaluations.begin(site):
            return
        self._tell(made, block, site)
        self._state.blocks.enter(block)

    def _tell(self, made: Any, block: Block, site: CallSite) -> None:
        log = self._state.log
        if self._step != log.step:
            self._step = log.step
            self._told.clear()
        asked = bool(made._enabled) or id(made) in self._refused
        kind = (made.device, made.fast_dtype, asked, made._cache_enabled)
        if (site, kind) in self._told:
            return
        self._told.add((site, kind))
        block.first_node = _next_node()
        site = shortened(site)
        block.columns = {
            "target": self._state.blocks.new_name(), "device_type": made.device, "dtype": dtype_name(made.fast_dtype),
            "asked": asked, "cache_enabled": bool(made._cache_enabled),
            "depth": self._state.blocks.depth,
        }  # fmt: skip
        call = self._log.begin("autocast_enter", **block.columns)
        call["autocast"] = autocast_dtype(made.device)
        self._log.finish(call)

    def _left(self, made: Any, _: Any, error: BaseException | None) -> None:
        if made is None or error is not None or in_backward():
            return
        block = self._state.blocks.leave(id(made))
        if not self._state.blocks.depth:
            self._evaluations.end()
        if block is None or block.columns is None:
            return
        most = max(block.calls.values(), default=0) if block.columns["depth"] == 0 else None
        made_within = _next_node() - block.first_node
        self._log.finish(self._log.begin("autocast_exit", **block.columns, nodes=made_within, module_calls=most))


def _itself(made: Any = None, *_: Any, **__: Any) -> Any:
    """Before the call: what is entered or left."""
    return made


def _keeps_copies(made: Any) -> bool:
    """Whether a block that was entered just now keeps casts of weights; within another one that one keeps them."""
    return bool(made._enabled) and bool(made._cache_enabled) and not getattr(made, "prev", False)


def _next_node() -> int:
    """Return the number of the next node that autograd makes in this thread."""
    ask: Any = getattr(torch.autograd, "_get_sequence_nr", None)
    return int(ask()) if ask is not None else 0
