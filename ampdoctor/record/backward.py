"""What a backward pass starts from and passes through: the loss, its scaling, and the casts on the gradients' way.

Where autograd casts a gradient from FP32 to half, both values exist for a moment. A hook on that node measures the
gradient before the cast: what the cast flushes is then known and not estimated.
"""

from __future__ import annotations

import math
import weakref
from functools import reduce
from typing import TYPE_CHECKING, Any

from ampdoctor.record.autograd_graph import (
    ACCUMULATE,
    CAST,
    CASTING,
    both,
    hand_factors,
    narrows,
    nodes,
    operation,
    scaled_share,
    site_below,
    unscaled,
)
from ampdoctor.record.likelihood_ratios import ratio_error
from ampdoctor.record.tensors import HALVES, dtype_name
from ampdoctor.record.undefined import undefined_operation

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch.utils.hooks import RemovableHandle

    from ampdoctor.record.log import Scalar, StepLog
    from ampdoctor.record.state import State
    from ampdoctor.record.tensor_log import TensorLog

_MOST_ONSETS = 8
"""Losses whose graph is looked at because they are not finite: batches that come round tell the same again."""


class BackwardReader:
    """Reads the graph before a backward pass runs it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._handles: list[RemovableHandle] = []
        self._leaves: list[torch.Tensor] = []
        self._onsets, self._was_broken = 0, False

    def read(self, roots: list[torch.Tensor]) -> dict[str, Any]:
        """Return the columns of the `calls` row, and follow the graph on an examined step."""
        self.release()
        shares = [scaled_share(root.grad_fn) for root in roots]
        scaled = None if None in shares or not shares else reduce(both, shares)
        log = self._state.log
        log.pass_scale = log.scale if scaled in {"all", "some"} else None
        self._state.held_graphs.mark(log.step, roots)
        log.losses += [_loss(log, root, scaled) for root in roots]
        factors = hand_factors(roots[0].grad_fn) if len(roots) == 1 else None
        columns: dict[str, Any] = {"scaled": scaled, "undefined": self._look_for_undefined(roots)}
        if factors is not None:
            largest = max(factors, default=1.0)
            columns |= {"factor": math.prod(factors), "largest_factor": largest}
            log.hand_scale = largest if largest > 1.0 else None
        if self._state.tensors is not None:
            columns["stale_casts"] = self._follow(roots, self._state.tensors)
            columns["ratio_error"] = log.scalar(ratio_error(roots))
            columns["reached"] = [weakref.ref(leaf) for leaf in self._leaves]
        return columns

    def _look_for_undefined(self, roots: list[torch.Tensor]) -> str | None:
        """Look at the graph of a loss that is known to be broken, where the one before was not."""
        losses = [value for value, _ in self._state.log.losses[-len(roots) :]]
        before, self._was_broken = self._was_broken, any(isinstance(v, float) and not math.isfinite(v) for v in losses)
        if before or not self._was_broken or len(roots) != 1 or self._onsets >= _MOST_ONSETS:
            return None
        self._onsets += 1
        return undefined_operation(roots[0])

    def take_leaves(self) -> list[torch.Tensor]:
        """Return the leaf tensors that the last pass reached; empty where its graph was not followed."""
        leaves, self._leaves = self._leaves, []
        return leaves

    def release(self) -> None:
        """Take the hooks off the graph of the last pass."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _follow(self, roots: list[torch.Tensor], tensors: TensorLog) -> int:
        """Follow the graph, and return how many stale casts of weights it holds."""
        stale, sums, guard = 0, self._state.weights.sums, self._state.guard
        for node in nodes(roots):
            kind = operation(node)
            if kind == ACCUMULATE:
                leaf = node.variable
                self._leaves.append(leaf)
                added = sums.follow(node, leaf, guard) if leaf.grad is not None else None
                self._handles += [added] if added is not None else []
            elif kind in CASTING:
                if narrows(node):  # not the cast of a weight, whose gradient is half already
                    hook = self._cast_hook(tensors, site_below(node))
                    self._handles.append(node.register_hook(hook))
                if kind == CAST:
                    stale += self._state.casts.met(node, self._state.optimizers)
        return stale

    def _cast_hook(self, tensors: TensorLog, path: str) -> Callable[..., None]:
        guard, state = self._state.guard, self._state

        def record(after: tuple[Any, ...], before: tuple[Any, ...]) -> None:
            with guard:
                if state.tensors is not tensors or not before or not after:
                    return
                wide = before[0]
                narrow = next((g for g in after if g is not None and g.dtype in HALVES), None)
                # A sum over a broadcast dimension is no longer the same elements.
                if wide is None or narrow is None or wide.dtype in HALVES or wide.shape != narrow.shape:
                    return
                site = (path, "grad_output", "cast")
                tensors.add(wide, site, scale=tensors.log.pass_scale, cast_to=dtype_name(narrow.dtype))

        return record


def _loss(log: StepLog, root: torch.Tensor, scaled: str | None) -> tuple[Scalar, Scalar]:
    """Return what backward starts from and the loss scale in it; of a scaled loss what it was before.

    A scale without bounds makes the scaled loss infinite long before anything is wrong with the loss.
    """
    step, before = unscaled(root) or (None, None)
    if step == log.step and before is not None:
        return before, None
    return log.scalar(root), log.scale if scaled == "all" else None
