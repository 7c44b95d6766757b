"""One step of a training on fake tensors, with its ledger."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.ledger.ledger import Ledger
from ampdoctor.record.ledger.storages import CUDA_BLOCK, TEMPORARY
from ampdoctor.record.planning.checkpoints import checkpoint_blocks
from ampdoctor.record.planning.failures import told
from ampdoctor.record.planning.fake import fake_tensors
from ampdoctor.record.planning.losses import called_with, converted, loss_of
from ampdoctor.record.planning.mode import PlanMode
from ampdoctor.record.planning.result import COMPONENTS, StepMemory
from ampdoctor.record.planning.sharding import GATHERED
from ampdoctor.record.planning.training import Training

if TYPE_CHECKING:
    from torch import nn

    from ampdoctor.record.ledger.storages import Moment, Storages
    from ampdoctor.record.planning.layouts import Layout
    from ampdoctor.record.planning.optimizers import OptimizerChoice
    from ampdoctor.record.planning.targets import Target


@dataclass(frozen=True)
class Settings:
    """What all layouts of a plan have in common.

    Attributes:
        target: the model.
        optimizer: what trains it.
        world_size: ranks that sharded layouts spread over.
        on_cuda: follow CUDA's rules, else the CPU's.
        checkpoint: compute blocks again in the backward pass.
    """

    target: Target
    optimizer: OptimizerChoice
    world_size: int
    on_cuda: bool
    checkpoint: bool


def step_memory(settings: Settings, layout: Layout, batch: int) -> StepMemory:
    """Return the memory of the second step of a training with `batch` samples: the first has no optimizer state yet.

    Gradients go at the end of a step. What a model returns besides its loss goes before the backward pass, as where a
    trainer's function returns the loss only.
    """
    with fake_tensors(settings.on_cuda):
        model = settings.target.model(getattr(torch, layout.weights))
        if settings.checkpoint:
            checkpoint_blocks(model)
        training = Training(
            model, layout, settings.optimizer, settings.world_size, on_cuda=settings.on_cuda
        )  # fmt: skip
        training.first_step()
        ledger = Ledger(training.holdings, None, CUDA_BLOCK if settings.on_cuda else None)
        ledger.begin()
        training.sharding.begin(ledger.storages, model)
        begin = ledger.storages.now()
        with PlanMode(ledger):
            _pass(settings.target, model, layout, batch, training, ledger)
        return _counted(ledger, begin)


def _pass(target: Target, model: nn.Module, layout: Layout, batch: int, training: Training, ledger: Ledger) -> None:
    """Run forward, backward and the optimizer."""
    data = converted(target.batch(batch), getattr(torch, layout.weights))
    with told(f"the forward pass of {target.name}"), _autocast(layout):
        loss = loss_of(called_with(model, data))
    training.sharding.end_pass()
    ledger.backward_begins([loss])
    with told(f"the backward pass of {target.name}"):
        loss.backward()
    training.sharding.end_pass()
    training.step(ledger)
    ledger.end()


def _autocast(layout: Layout) -> contextlib.AbstractContextManager[None]:
    if layout.autocast is None:
        return contextlib.nullcontext()
    on: contextlib.AbstractContextManager[None] = torch.autocast("cpu", getattr(torch, layout.autocast))
    return on


def _counted(ledger: Ledger, begin: int) -> StepMemory:
    storages = ledger.storages
    ends = {mark.phase: mark.moment for mark in ledger.marks}
    moments, start = {}, begin
    for phase, end in ends.items():
        moments[phase], start = storages.at(_highest(storages, start, end)), end
    peaks = {phase: _total(moment) for phase, moment in moments.items()}
    phase = max(peaks, key=peaks.__getitem__)
    last = {phase: _components(storages.at(end)) for phase, end in ends.items()}
    return StepMemory(peaks[phase], phase, _components(moments[phase]), peaks, last)


def _highest(storages: Storages, begin: int, end: int) -> int:
    return next(iter(storages.peaks(begin, end).values()))


def _total(moment: Moment) -> int:
    return sum(held.bytes for held in moment.values())


def _components(moment: Moment) -> dict[str, int]:
    found = dict.fromkeys(COMPONENTS, 0)
    for label, held in moment.items():
        found[TEMPORARY if label.component == GATHERED else label.component] += held.bytes
    return found
