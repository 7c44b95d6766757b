"""Everything that executing modules once more may change, put back as it was, to the bit and to the object.

Put back are: parameters and buffers and their version counters, gradients, the plain Python state that modules reach
(`Reachable`), and the generators of random numbers. Where something is reachable whose state can't be known, as that
of an open file or an iterator, nothing is executed. Variables outside modules and classes are out of reach, and what
the user's code prints or logs comes out once more: to hold it back would mean taking the standard streams from other
threads and child processes too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.headroom import fits
from ampdoctor.record.twin.replay.bits import same_bits
from ampdoctor.record.twin.replay.reachable import Reachable
from ampdoctor.record.twin.replay.roots import modules_below
from ampdoctor.record.twin.replay.surroundings import Randomness
from ampdoctor.record.twin.replay.tensor_places import version_of
from ampdoctor.record.twin.replay.versions import can_put_versions, put_version

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from torch import nn


class NotRestorableError(Exception):
    """Something could not be put back as it was; the message says what."""


class Untouched:
    """A context that leaves `roots`, and all that they reach, as they were.

    Raises:
        NotRestorableError: on entry.
    """

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        self._modules = {id(m): m for root in roots for m in modules_below(root)}
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        if not can_put_versions():
            raise NotRestorableError("this version of torch cannot put version counters back")
        found = Reachable(self._modules.values())
        if found.fault is not None:
            raise NotRestorableError(found.fault)
        tensors = found.tensors.values()
        if not fits(tensors):
            raise NotRestorableError("too little memory for a copy of the weights")
        # Undone in the opposite order, each whatever became of those before.
        self._undo.callback(Randomness.now().put_back)
        for restore in found.restorers:
            self._undo.callback(restore)
        for tensor in tensors:
            if tensor.is_leaf:
                self._undo.callback(_put_gradient, tensor, tensor.grad)
        for tensor in tensors:
            self._undo.callback(_put_back, tensor, version_of(tensor), tensor.detach().clone())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()


def _put_back(tensor: torch.Tensor, version: int | None, values: torch.Tensor) -> None:
    # A version that has grown would be an error in a graph of the user's that has saved the tensor.
    if not same_bits(tensor, values):
        with torch.no_grad():
            tensor.data.copy_(values)
    if version is not None and version_of(tensor) != version:
        put_version(tensor, version)


def _put_gradient(tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
    if tensor.grad is not gradient:
        tensor.grad = gradient
