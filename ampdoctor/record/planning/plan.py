"""Plans the memory of a training under several layouts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.cards import card_bytes
from ampdoctor.record.planning.fake import fake_tensors
from ampdoctor.record.planning.fit import largest_batch
from ampdoctor.record.planning.layouts import layouts_named
from ampdoctor.record.planning.optimizers import optimizer_named
from ampdoctor.record.planning.result import LayoutPlan, Plan
from ampdoctor.record.planning.step import Settings, step_memory
from ampdoctor.record.planning.targets import load_target

if TYPE_CHECKING:
    from ampdoctor.record.planning.layouts import Layout
    from ampdoctor.record.planning.result import StepMemory

DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class Question:
    """What a plan is asked for, as a person writes it.

    Attributes:
        target: `module:factory`, `file.py:factory`, or the path of a Hugging Face config.
        batch: samples per step and rank.
        optimizer: name of the optimizer.
        layouts: names of layouts, with commas between them.
        world_size: ranks that sharded layouts spread over.
        card: a card, or its memory; None without one.
        checkpoint: compute blocks again in the backward pass.
        device: `cuda` or `cpu`: whose rules are followed.
        sequence: tokens per sample of a model from a config.
    """

    target: str
    batch: int = 1
    optimizer: str = "adamw"
    layouts: str = "fp32,amp-fp16,amp-bf16,pure-bf16,fp16-master"
    world_size: int = 8
    card: str | None = None
    checkpoint: bool = False
    device: str = "cuda"
    sequence: int | None = None


def plan(question: Question) -> Plan:
    """Return the answer.

    Raises:
        AmpDoctorError: the question can't be answered; the hint says what to do.
    """
    for what, value in (
        ("--batch", question.batch),
        ("--world-size", question.world_size),
        ("--sequence", question.sequence),
    ):
        if value is not None and value < 1:
            raise AmpDoctorError(f"{what} is {value}", hint="give a whole number from 1 up")
    if question.device not in DEVICES:
        raise AmpDoctorError(f"unknown device {question.device!r}", hint="known devices: " + ", ".join(DEVICES))
    layouts = layouts_named(question.layouts)
    card = None if question.card is None else card_bytes(question.card)
    optimizer = optimizer_named(question.optimizer)
    target = load_target(question.target, question.sequence)
    settings = Settings(target, optimizer, question.world_size, question.device == "cuda", question.checkpoint)
    planned = [_planned(settings, each, question.batch, card) for each in layouts]
    return Plan(
        question.target, _parameters(settings), question.batch, optimizer.name, question.device, question.world_size,
        question.checkpoint, target.sequence, card, planned,
    )  # fmt: skip


def _parameters(settings: Settings) -> int:
    with fake_tensors(settings.on_cuda):
        return sum(p.numel() for p in settings.target.model(torch.float32).parameters())


def _planned(settings: Settings, layout: Layout, batch: int, card: int | None) -> LayoutPlan:
    @cache
    def memory(size: int) -> StepMemory:
        return step_memory(settings, layout, size)

    step = memory(batch)
    if card is None:
        return LayoutPlan(layout.name, layout.title, step)
    fit = largest_batch(lambda size: memory(size).peaks, batch, card)
    return LayoutPlan(layout.name, layout.title, step, fit.batch, fit.affine)
