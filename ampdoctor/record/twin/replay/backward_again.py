"""The backward passes executed again, from the gradients that had arrived at the outputs of root modules.

`.grad` is left alone. An output from which another output was computed gets its gradient from there, as it did in the
run; where more than that had arrived at it, it is handed what had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.autograd_graph import leaf_of, nodes, operation
from ampdoctor.record.twin.replay.bits import same_bits
from ampdoctor.record.twin.replay.forward_again import NotTheSameError
from ampdoctor.record.twin.replay.own_gradients import OwnGradients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.utils.hooks import RemovableHandle

    from ampdoctor.record.autograd_graph import Node
    from ampdoctor.record.twin.mode import TwinMode
    from ampdoctor.record.twin.replay.places import ReplayPlaces
    from ampdoctor.record.twin.replay.root_call import Output

_REENTRANT = "CheckpointFunctionBackward"
"""Reentrant checkpointing works with `backward` alone."""


class BackwardAgain:
    """Executes passes and adds up the gradients of the weights.

    Args:
        mode: shows the operations.
        places: where they are.
        seeded: given each gradient that a pass is about to begin from.
        weights: those that the graph may not tell of.

    Attributes:
        passes: how many were executed.
        seeds: gradients that they began from.
        wide_seeds: those of them that were taken before their cast to half.
    """

    def __init__(
        self,
        mode: TwinMode,
        places: ReplayPlaces,
        seeded: Callable[[torch.Tensor], None],
        weights: Sequence[torch.Tensor],
    ) -> None:
        self._mode, self._places, self._seeded = mode, places, seeded
        self._weights = weights
        self._totals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._arrived: set[int] = set()
        self.passes = self.seeds = self.wide_seeds = 0

    def execute(
        self,
        number: int,
        outputs: Sequence[tuple[torch.Tensor, Output]],
        inputs: Sequence[torch.Tensor],
        *,
        retain: bool,
    ) -> None:
        """Execute pass `number` through `outputs`.

        Raises:
            NotTheSameError: a gradient was changed in place, or did not arrive.
        """
        if not all(output.gradients[number].unchanged for _, output in outputs):
            raise NotTheSameError("a gradient has been changed in place since")
        graph = list(nodes([tensor for tensor, _ in outputs]))
        inner = _passed_through(graph)
        ends = [(t, o) for t, o in outputs if (t.grad_fn, t.output_nr) not in inner]
        middle = [(t, o) for t, o in outputs if (t.grad_fn, t.output_nr) in inner]
        handles = [self._hold(t, o, o.gradients[number].tensor) for t, o in middle]
        try:
            seeds = [self._seed(output, number) for _, output in ends]
            self._run([t for t, _ in ends], seeds, graph, inputs, retain=retain)
        finally:
            for handle in handles:
                handle.remove()
        if not all(id(output) in self._arrived for _, output in middle):
            raise NotTheSameError("a gradient did not arrive again where it had")
        self._arrived.clear()
        self.passes += 1

    def gradients(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the weights and what the passes have added to their gradients."""
        return list(self._totals.values())

    def release(self) -> None:
        """Let go of everything."""
        self._totals.clear()

    def _seed(self, output: Output, number: int) -> torch.Tensor:
        """Return what had arrived at an output; under the followers' eyes it is cast to half, where it was."""
        narrow = output.gradients[number].tensor
        above = output.wide.get(number)
        wide = None if above is None else above.kept
        self.seeds += 1
        if wide is not None and wide.unchanged and wide.tensor.numel() == narrow.numel():
            source = wide.tensor.reshape(narrow.shape)
            if same_bits(source.to(narrow.dtype), narrow):
                self.wide_seeds += 1
                self._seeded(source)
                self._places.between = True
                try:
                    with self._mode:
                        return _cast(source, narrow)
                finally:
                    self._places.between = False
        self._seeded(narrow)
        return narrow

    def _hold(self, tensor: torch.Tensor, output: Output, kept: torch.Tensor) -> RemovableHandle:
        """See to it that what had arrived at `tensor` goes on from there."""

        def hook(gradient: torch.Tensor) -> torch.Tensor | None:
            self._arrived.add(id(output))
            on, self._mode.on = self._mode.on, False
            try:
                return None if same_bits(gradient, kept) else kept
            finally:
                self._mode.on = on

        handle: RemovableHandle = tensor.register_hook(hook)
        return handle

    def _run(
        self,
        roots: Sequence[torch.Tensor],
        seeds: Sequence[torch.Tensor],
        graph: Sequence[Node],
        inputs: Sequence[torch.Tensor],
        *,
        retain: bool,
    ) -> None:
        leaves = {id(t): t for node in graph if (t := leaf_of(node)) is not None}
        if any(operation(node) == _REENTRANT for node in graph):
            with OwnGradients([*leaves.values(), *self._weights]) as own, self._mode:
                torch.autograd.backward(list(roots), list(seeds), retain_graph=retain)
                found = own.found()
        else:
            with self._mode:
                got = torch.autograd.grad(
                    list(roots), list(leaves.values()), list(seeds), retain_graph=retain, allow_unused=True
                )  # fmt: skip
            found = list(zip(leaves.values(), got, strict=True))
        given = {id(tensor) for tensor in inputs}
        for leaf, gradient in found:
            if gradient is not None and id(leaf) not in given:
                self._add(leaf, gradient)

    def _add(self, leaf: torch.Tensor, gradient: torch.Tensor) -> None:
        known = self._totals.get(id(leaf))
        if known is not None:
            self._places.between = True
            try:
                with self._mode, torch.no_grad():
                    gradient = known[1] + gradient
            finally:
                self._places.between = False
        self._totals[id(leaf)] = leaf, gradient


def _cast(source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `source` in the dtype and the layout of `like`."""
    result = source.to(like.dtype)
    if result.stride() == like.stride():
        return result
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(result)


def _passed_through(graph: Sequence[Node]) -> set[tuple[Node, int]]:
    """Return the (node, number of output) pairs that a gradient comes to from above."""
    return {(n, number) for node in graph for n, number in node.next_functions if n is not None}
