"""What would make a step take less memory, with what each saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memory.checkpoints import checkpoints
from ampdoctor.analysis.memory.ledgers import PEAK, by, is_float, total
from ampdoctor.analysis.memory.policy import is_of_loss, stays_fp32
from ampdoctor.analysis.wording import bytes_text, counted, percent
from ampdoctor.finding import Grade
from ampdoctor.formats import HALF_DTYPES
from ampdoctor.trace.schema import COPY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import MemoryRow

_WORTH = 0.02
"""Share of the peak that is worth a piece of advice."""

_FP32 = "float32"


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    Attributes:
        name: what it is about, for programs.
        text: what to do, with its numbers.
        saves_bytes: what it saves, at the most.
        costs_ms: time that it adds to a step; None where it is not known, or nothing.
        grade: how the saving is known.
    """

    name: str
    text: str
    saves_bytes: int
    costs_ms: float | None = None
    grade: Grade = Grade.ESTIMATED


def advice(run: Run, ledger: Ledger) -> list[Advice]:
    """Return what is worth it, the largest saving first."""
    least = _WORTH * ledger.total(PEAK)
    found = [*_checkpoints(run, ledger), *_optimizer(ledger), *_logits(ledger), *_kept_fp32(ledger), *_copies(ledger)]
    return sorted((a for a in found if a.saves_bytes >= max(least, 1)), key=lambda a: -a.saves_bytes)


def _checkpoints(run: Run, ledger: Ledger) -> Iterator[Advice]:
    for found in checkpoints(run, ledger):
        time = ""
        if found.forward_ms is not None and found.step_ms:
            share = percent(min(found.forward_ms / found.step_ms, 1.0))
            time = f" Costs their forward pass once more: {found.forward_ms:.3g} ms, {share} of the operations' time."
        yield Advice(
            "checkpoint",
            f"Checkpoint {_named(found.modules)} (torch.utils.checkpoint): saves {bytes_text(found.saves_bytes)} of "
            f"the {bytes_text(found.kept_bytes)} that they keep for the backward pass.{time}",
            found.saves_bytes,
            found.forward_ms,
        )


def _named(modules: tuple[str, ...]) -> str:
    named = ", ".join(f"`{module}`" for module in modules[:3])
    return named if len(modules) <= 3 else f"`{modules[0]}` to `{modules[-1]}` ({len(modules)} modules)"


def _optimizer(ledger: Ledger) -> Iterator[Advice]:
    rows = [r for r in ledger.at(PEAK, "optimizer") if r.dtype == _FP32 and r.kind != "step"]
    if rows:
        held = total(rows)
        kinds = ", ".join(f"`{kind}`" for kind, _ in by(rows, "kind"))
        yield Advice(
            "optimizer-state",
            f"Keep the optimizer's state ({kinds}: {bytes_text(held)} of FP32) in 8 bits (bitsandbytes, torchao): "
            f"saves {bytes_text(held * 3 // 4)}. In BF16 it would be {bytes_text(held // 2)} less, with small updates "
            "of `exp_avg_sq` lost.",
            held * 3 // 4,
        )


def _logits(ledger: Ledger) -> Iterator[Advice]:
    rows = [r for r in ledger.at("forward", "activations") if is_float(r)]
    normalised = [r for r in rows if is_of_loss(r.kind)]
    if not normalised or max(rows, key=lambda r: r.bytes / max(r.storages, 1)) not in normalised:
        return
    held = total(normalised)
    yield Advice(
        "logits",
        f"The largest activation is the logits' log-softmax, {bytes_text(held)}; its gradient is as large. A fused or "
        "chunked linear cross-entropy (Liger Kernel, torchtune, Apple's cut-cross-entropy) never holds all of it; a "
        "smaller vocabulary, fewer tokens or `ignore_index` rows dropped before the head shrink it.",
        held,
    )


def _kept_fp32(ledger: Ledger) -> Iterator[Advice]:
    """Yield what stays FP32 under autocast, by the operation that keeps it so."""
    if ledger.autocast not in HALF_DTYPES:
        return
    rows = [r for r in ledger.at("forward", "activations") if r.dtype == _FP32]
    for kind, held in by(rows, "kind"):
        reason = stays_fp32(kind, ledger.device)
        if reason is not None:
            where = _where([r for r in rows if r.kind == kind])
            yield Advice(
                "fp32-activations",
                f"{bytes_text(held)} of activations stay FP32 because {reason}{where}; in half they would be "
                f"{bytes_text(held // 2)} less.",
                held // 2,
            )


def _where(rows: list[MemoryRow]) -> str:
    modules = [str(module) for module, _ in by(rows, "module") if module]
    if not modules:
        return ""
    others = f" and {counted(len(modules) - 1, 'other')}" if len(modules) > 1 else ""
    return f" (`{modules[0]}`{others})"


def _copies(ledger: Ledger) -> Iterator[Advice]:
    rows = [r for r in ledger.at("forward", "activations") if (r.kind or "").endswith(COPY)]
    if rows:
        yield Advice(
            "casts",
            f"{bytes_text(total(rows))} are half copies of activations that are kept too, or were cast before"
            f"{_where(rows)}: cast once, before what they go to (`x = x.to(dtype)`), and hand on the result.",
            total(rows),
        )
