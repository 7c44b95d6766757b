"""What mixed precision saved, in a sentence: which component shrank, and which could not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.memory.layouts import AMP_BF16, FP32, Layout
from ampdoctor.analysis.wording import bytes_text, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

_TITLES = {
    "weights": "weights", "master_weights": "master copies", "gradients": "gradients", "optimizer": "optimizer state",
    "activations": "activations", "autocast_cache": "half copies of weights", "buffers": "buffers",
    "temporary": "temporaries", "other": "the rest",
}  # fmt: skip

_CANNOT = ("weights", "gradients", "optimizer")
"""What stays FP32 under autocast."""


def title(component: str) -> str:
    """Return what text calls a component."""
    return _TITLES.get(component, component)


def saved_sentence(layouts: Iterable[Layout]) -> str:
    """Return what the run's own layout saves against FP32; of an FP32 run, what autocast would."""
    by_name = {layout.name: layout for layout in layouts}
    own = next(layout for layout in by_name.values() if layout.own)
    fp32 = by_name[FP32]
    now = by_name[AMP_BF16] if own is fp32 else own
    verb = "would save" if own is fp32 else "saves"
    who = "Autocast" if now.name.startswith("amp-") else f"This layout ({now.name})"
    saved = fp32.peak_bytes - now.peak_bytes
    if abs(saved) * 1000 < fp32.peak_bytes:
        first = f"{who} {verb} no memory here (estimated)"
    elif saved > 0:
        share = percent(saved / fp32.peak_bytes)
        first = f"{who} {verb} {bytes_text(saved)} of {bytes_text(fp32.peak_bytes)}, {share} (estimated)"
    else:
        takes = "would take" if own is fp32 else "takes"
        first = f"{who} {takes} {bytes_text(-saved)} more than FP32 (estimated)"
    return ". ".join(part for part in (f"{first}{_changes(fp32, now)}", _cannot(now)) if part) + "."


def _changes(fp32: Layout, now: Layout) -> str:
    """Return which components change, and by how much."""
    parts = []
    for component, size in now.components.items():
        less = fp32.components[component].bytes - size.bytes
        if abs(less) * 1000 >= max(fp32.peak_bytes, 1):
            parts.append(f"{title(component)} {bytes_text(abs(less))} {'less' if less > 0 else 'more'}")
    return f": {', '.join(parts)}" if parts else ""


def _cannot(now: Layout) -> str:
    held = sum(now.components[c].bytes for c in _CANNOT)
    if not now.name.startswith("amp-") or not now.peak_bytes:
        return ""
    share = percent(held / now.peak_bytes)
    return (
        f"Weights, gradients and optimizer state stay FP32 under autocast: {bytes_text(held)}, {share} of what is left"
    )
