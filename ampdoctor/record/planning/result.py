"""What a plan says."""

from __future__ import annotations

from dataclasses import dataclass, field

COMPONENTS = (
    "weights", "master_weights", "gradients", "optimizer", "activations", "autocast_cache", "buffers", "temporary",
)  # fmt: skip
"""What memory is for, in the order in which it is told; the words of the table `memory`."""


@dataclass(frozen=True)
class StepMemory:
    """Memory of one step.

    Attributes:
        peak_bytes: the most that lived at once.
        phase: when that was: `forward`, `backward` or `step`.
        components: bytes by what they were for, at that moment.
        peaks: the most of each phase.
        ends: bytes by what they were for at the end of each phase.
    """

    peak_bytes: int
    phase: str
    components: dict[str, int]
    peaks: dict[str, int]
    ends: dict[str, dict[str, int]]


@dataclass(frozen=True)
class LayoutPlan:
    """A step under one layout.

    Attributes:
        layout: its name.
        title: what it means.
        memory: of the step with the batch that was asked for.
        largest_batch: the largest that fits the card, 0 where none does; None without a card.
        affine: the peak grew evenly with the batch, so that three steps were enough to find it.
    """

    layout: str
    title: str
    memory: StepMemory
    largest_batch: int | None = None
    affine: bool | None = None


@dataclass(frozen=True)
class Plan:
    """Steps of one model under several layouts.

    Attributes:
        target: what was planned, as it was given.
        parameters: how many numbers the model learns or holds.
        batch: samples per step and rank.
        optimizer: name of the optimizer.
        device: `cuda` or `cpu`: whose rules the step followed.
        world_size: ranks that sharded layouts spread over.
        checkpoint: blocks are computed again in the backward pass.
        sequence: tokens per sample, where the plan chose them.
        card_bytes: memory of the card; None without one.
        layouts: one plan for each.
    """

    target: str
    parameters: int
    batch: int
    optimizer: str
    device: str
    world_size: int
    checkpoint: bool
    sequence: int | None = None
    card_bytes: int | None = None
    layouts: list[LayoutPlan] = field(default_factory=list)
