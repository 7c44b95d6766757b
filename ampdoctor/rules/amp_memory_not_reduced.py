"""The rule amp-memory-not-reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type
from ampdoctor.analysis.calls.autocast_memory import AutocastMemory, autocast_memory
from ampdoctor.analysis.wording import bytes_text, counted
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(batch: int, *, width: int = 1024, weight: str = "float32", half: str = "bfloat16") -> RunBuilder:
    """Four layers of width times width under autocast."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=2.0)
    for n in range(4):
        run.tensor(
            f"layers.{n}", "weight", slot="weight", dtype=weight, exponents={-5: width * width},
            shape=[width, width],
        )  # fmt: skip
        run.tensor(
            f"layers.{n}", "activation", dtype=half, autocast=half,
            exponents={0: batch * width}, shape=[batch, width],
        )  # fmt: skip
    return run


def _with_ledger(copies: int, activations: int) -> RunBuilder:
    """A batch that looks too small, with the bytes that were recorded as the backward pass began."""
    run = _run(4).memory("forward", "weights", 2**24)
    run.memory("forward", "autocast_cache", copies, dtype="bfloat16", storages=4)
    return run.memory("forward", "activations", activations, kind="aten.addmm", module="layers.0", dtype="bfloat16")


class AmpMemoryNotReduced(Rule):
    """Autocast takes more memory than it saves: half copies of the weights outweigh the smaller activations.

    What it means
        With autocast, weights, gradients and optimizer state stay in FP32; only activations become half as large. Of
        every weight that is used in half a copy is made besides, and is kept until the backward pass has used it. With
        a small batch and large weights the copies are more than what the activations save.

    Why it matters
        Mixed precision was turned on to fit a larger model or batch, and memory went up instead of down.

    How to fix
        Make the batch (or the sequence) larger: activations grow with it, and the copies do not. Where the batch must
        be small, memory is in weights, gradients and optimizer state: an 8-bit optimizer, sharding them, or adapters on
        a frozen half model reduce those, and autocast does not.

    Not to be mistaken for
        A run whose activations are the larger part. Half weights, of which no copies are made. Small models, where
        neither matters.
    """

    code = "AMP601"
    name = "amp-memory-not-reduced"
    severity = Severity.WARNING
    needs = ("tensors",)
    thresholds = {
        "bytes": Threshold(2**21, "torch's CUDA allocator hands out small tensors in blocks of 2 MiB"),
        "weight_share": Threshold(0.05, "of the FP32 weights: a few percent of a model's memory are nobody's trouble"),
    }
    HEALTHY = (
        Example("a batch that makes activations the larger part", lambda: _run(4096)),
        Example("weights in half, without copies", lambda: _run(4, weight="bfloat16")),
        Example("a small model", lambda: _run(4, width=64)),
        Example("activations that no module handed on, as recorded", lambda: _with_ledger(2**23, 2**24)),
        Example("copies that were not kept, as recorded", lambda: _with_ledger(0, 2**20)),
    )
    SICK = (
        Example("four rows through a million weights", lambda: _run(4)),
        Example("copies, and no activation that autocast makes smaller", lambda: _with_ledger(2**23, 0)),
        Example("copies of more than the activations save, as recorded", lambda: _with_ledger(2**23, 2**20)),
        Example("FP16, and a batch just too small", lambda: _run(400, half="float16")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        memory = autocast_memory(run)
        if memory is None:
            return
        added = memory.copy_bytes - memory.saved_bytes
        least = max(self.threshold("bytes"), self.threshold("weight_share") * memory.weight_bytes)
        if added >= least:
            yield self._finding(run, memory, added)

    def _finding(self, run: Run, memory: AutocastMemory, added: int) -> Finding:
        at_most = "" if memory.recorded else " at most"
        evidence = [
            Evidence(
                "copy_bytes", memory.copy_bytes,
                f"Autocast keeps half copies of {counted(memory.copied, 'FP32 weight')} until the backward pass: "
                f"{bytes_text(memory.copy_bytes)}.", Grade.OBSERVED if memory.recorded else Grade.ESTIMATED,
            ),
            Evidence(
                "saved_bytes", memory.saved_bytes,
                f"Half activations save {bytes_text(memory.saved_bytes)}{at_most} on step {memory.step}.",
                Grade.ESTIMATED,
            ),
            Evidence(
                "weight_bytes", memory.weight_bytes,
                f"The weights take {bytes_text(memory.weight_bytes)} in FP32, as they would without autocast; their "
                "gradients as much again.",
            ),
        ]  # fmt: skip
        return self.finding(
            f"Autocast needs {bytes_text(added)} more memory than FP32 here: the half copies of the weights outweigh "
            "what smaller activations save.",
            evidence=evidence,
            fixes=[
                *_larger_batch(memory),
                Fix(
                    "Leave autocast off where memory is what you want from it",
                    f'torch.autocast("{device_type(run)}", enabled=False)',
                    f"Memory falls by {bytes_text(added)}; speed is another matter.",
                ),
            ],
            location=Location(tuple(f"{m} (weight)" for m in memory.modules), memory.step, memory.step),
            confidence=Confidence.HIGH if memory.recorded else Confidence.MEDIUM,
            grade=Grade.ESTIMATED,
        )  # fmt: skip


_MOST_TIMES = 1000.0
"""A batch that would have to be larger still is no advice."""


def _larger_batch(memory: AutocastMemory) -> list[Fix]:
    factor = memory.copy_bytes / memory.saved_bytes if memory.saved_bytes else math.inf
    if factor > _MOST_TIMES:
        return []
    return [
        Fix(
            f"Make the batch {factor:.0f} times as large, or more",
            f"DataLoader(dataset, batch_size={factor:.0f} * batch_size)",
            "From there on, half activations save more than the copies take.",
        )
    ]
