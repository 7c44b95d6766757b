"""What a training would take, for people and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampdoctor.report.json import SCHEMA_VERSION
from ampdoctor.report.layout import PLAIN_WIDTH, Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ampdoctor.record.planning.result import LayoutPlan, Plan, StepMemory

_UNITS = {"GB": 10**9, "MB": 10**6, "kB": 10**3}

_NOTHING = "-"

_HEADS = {
    "weights": "weights", "master_weights": "master", "gradients": "gradients", "optimizer": "optimizer",
    "activations": "activations", "autocast_cache": "autocast", "buffers": "buffers", "temporary": "temporary",
}  # fmt: skip

_PHASES = {"forward": "forward", "backward": "backward", "step": "optimizer"}

_STATE = ("weights", "master_weights", "gradients", "optimizer")
"""What a training holds whatever the batch."""

_NOTES = (
    "GB are 10^9 bytes. activations: kept for the backward pass. autocast: half copies of weights. temporary: all "
    "else, such as the optimizer's intermediate results. state/param: bytes of weights, master copies, gradients and "
    "optimizer state per parameter. Not counted: the CUDA context, libraries' workspaces, and gaps in the allocator's "
    "memory: leave room for them."
)


def document(plan: Plan) -> str:
    """Return it as JSON, in bytes."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "target": plan.target,
        "parameters": plan.parameters,
        "batch": plan.batch,
        "sequence": plan.sequence,
        "optimizer": plan.optimizer,
        "device": plan.device,
        "world_size": plan.world_size,
        "checkpoint": plan.checkpoint,
        "card_bytes": plan.card_bytes,
        "layouts": [_entry(layout, plan.parameters) for layout in plan.layouts],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(layout: LayoutPlan, parameters: int) -> dict[str, Any]:
    memory = layout.memory
    return {
        "layout": layout.layout,
        "title": layout.title,
        "peak_bytes": memory.peak_bytes,
        "peak_phase": memory.phase,
        "components": memory.components,
        "phases": {
            phase: {"peak_bytes": peak, "components_at_end": memory.ends[phase]} for phase, peak in memory.peaks.items()
        },
        "state_bytes": _state(memory),
        "state_bytes_per_parameter": round(_state(memory) / parameters, 3),
        "largest_batch": layout.largest_batch,
        "affine": layout.affine,
    }


def page(plan: Plan, width: int = PLAIN_WIDTH) -> Page:
    """Return it as tables: what makes the peak of each layout, and how high each phase of a step is."""
    paper = Page(width)
    paper.say(_heading(plan), style="bold")
    paper.blank()
    unit = _unit(plan)
    components = [c for c in _HEADS if any(_size(each.memory.components[c], unit) != _NOTHING for each in plan.layouts)]
    head = [f"{unit} at the peak", "peak", *(_HEADS[c] for c in components)]
    rows = [
        [each.layout, *(_size(n, unit) for n in (each.memory.peak_bytes, *_each(each.memory.components, components)))]
        for each in plan.layouts
    ]
    _table(paper, [head, *rows])
    paper.blank()
    _table(paper, [_phase_head(plan, unit), *(_phase_row(each, plan, unit) for each in plan.layouts)])
    paper.blank()
    for each in plan.layouts:
        paper.say(each.title, label=f"{each.layout}: ", label_style="bold", hang=2)
    paper.blank()
    paper.say(_NOTES, style="dim")
    return paper


def _heading(plan: Plan) -> str:
    parts = [f"{plan.target}: {plan.parameters:,} parameters, batch {plan.batch}"]
    if plan.sequence is not None:
        parts.append(f"{plan.sequence} tokens each")
    parts.append(plan.optimizer)
    if plan.checkpoint:
        parts.append("activation checkpointing")
    if any(each.layout.startswith("zero") for each in plan.layouts):
        parts.append(f"one of {plan.world_size} ranks where spread")
    return ", ".join(parts) + f", as on {'a CUDA device' if plan.device == 'cuda' else 'a CPU'}"


def _phase_head(plan: Plan, unit: str) -> list[str]:
    head = [f"{unit} at most in", *_PHASES.values(), "state/param"]
    return head if plan.card_bytes is None else [*head, f"batch in {plan.card_bytes / 1e9:.4g} GB"]


def _phase_row(layout: LayoutPlan, plan: Plan, unit: str) -> list[str]:
    row = [layout.layout, *(_size(n, unit) for n in _each(layout.memory.peaks, _PHASES))]
    row.append(f"{_state(layout.memory) / plan.parameters:.2f} B")
    if layout.largest_batch is not None:
        row.append(str(layout.largest_batch) if layout.largest_batch else "does not fit")
    return row


def _state(memory: StepMemory) -> int:
    return sum(memory.ends["step"][component] for component in _STATE)


def _each(sizes: Mapping[str, int], names: Iterable[str]) -> Iterator[int]:
    return (sizes[name] for name in names)


def _unit(plan: Plan) -> str:
    """Return one unit for the whole page, in which the highest peak has two digits or so."""
    highest = max(each.memory.peak_bytes for each in plan.layouts)
    return next((unit for unit, size in _UNITS.items() if highest >= size // 10), "kB")


def _size(size: int, unit: str) -> str:
    text = f"{size / _UNITS[unit]:.2f}"
    return text if float(text) else _NOTHING


def _table(paper: Page, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        paper.line("  ".join(cells), style="" if number else "bold")
