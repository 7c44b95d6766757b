"""What the same step would take in other precision layouts, worked out from what was recorded of it.

Estimated: the moment of the peak may be another one, and which results autocast leaves in FP32 is known by the names of
the operations only. Where nothing of a component changes, its number is the recorded one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memory.ledgers import FORWARD, is_float, total
from ampdoctor.analysis.memory.policy import base, is_cast, is_of_loss, is_sum, stays_fp32
from ampdoctor.finding import Grade
from ampdoctor.formats import HALF_DTYPES, format_of_dtype
from ampdoctor.trace.schema import COPY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import MemoryRow

FP32, AMP_FP16, AMP_BF16, PURE_BF16 = "fp32", "amp-fp16", "amp-bf16", "pure-bf16"

MIXED = "mixed"
"""Weights in FP32 and in half beside each other: adapters on a frozen half model, say."""

_NEARLY_ALL = 0.95
"""Share of the weights' bytes from which on the rest, norms kept in FP32 for instance, makes no layout of its own."""

_MOSTLY = 0.5
"""Share of the activations."""

LAYOUTS = (FP32, AMP_FP16, AMP_BF16, PURE_BF16)

COMPONENTS = (
    "weights", "master_weights", "gradients", "optimizer", "activations", "autocast_cache", "buffers", "temporary",
    "other",
)  # fmt: skip

_OF_WEIGHTS = frozenset({"weights", "gradients", "optimizer", "buffers"})


@dataclass(frozen=True)
class Size:
    """Bytes of one component, and how they are known."""

    bytes: int
    grade: Grade


@dataclass(frozen=True)
class Layout:
    """The step in one layout.

    Attributes:
        name: one of LAYOUTS, or what the run itself is where that is none of them.
        own: the run itself.
        phase: the moment at which most lives.
        components: what lives then.
    """

    name: str
    own: bool
    phase: str
    components: dict[str, Size]

    @property
    def peak_bytes(self) -> int:
        """All components at the moment at which most lives."""
        return sum(size.bytes for size in self.components.values())

    @property
    def grade(self) -> Grade:
        """How that is known."""
        return Grade.OBSERVED if self.own else Grade.ESTIMATED


def own_layout(ledger: Ledger) -> str:
    """Return the layout that the run is in."""
    weights = ledger.at(ledger.phases[0], "weights")
    halves = {r.dtype for r in weights} & HALF_DTYPES
    share = total(r for r in weights if r.dtype in HALF_DTYPES) / max(total(weights), 1)
    if 1.0 - _NEARLY_ALL < share < _NEARLY_ALL:
        return MIXED
    if halves and share >= _NEARLY_ALL:
        half = _short(min(str(d) for d in halves))
        return f"{half}-master" if any(r.component == "master_weights" for r in ledger.rows) else f"pure-{half}"
    return FP32 if ledger.autocast is None else f"amp-{_short(ledger.autocast)}"


def _short(dtype: str) -> str:
    number_format = format_of_dtype(dtype)
    return dtype if number_format is None else number_format.name


def layouts(run: Run, ledger: Ledger) -> list[Layout]:
    """Return the step in each of LAYOUTS, the run's own among them or before them."""
    own = own_layout(ledger)
    names = LAYOUTS if own in LAYOUTS else (own, *LAYOUTS)
    copies = _half_copies(run, ledger)
    return [_layout(ledger, own, name, copies) for name in names]


def layouts_at(run: Run, ledger: Ledger, phase: str) -> list[Layout]:
    """Return what lives at one moment in each of LAYOUTS, the run's own among them or before them."""
    own = own_layout(ledger)
    names = LAYOUTS if own in LAYOUTS else (own, *LAYOUTS)
    copies = _half_copies(run, ledger)
    return [_moment(ledger, phase, own, name, copies) for name in names]


def layout_at(ledger: Ledger, phase: str, name: str) -> Layout:
    """Return what lives at one moment in one of LAYOUTS."""
    return _moment(ledger, phase, own_layout(ledger), name, 0)


def _layout(ledger: Ledger, own: str, name: str, copies: int) -> Layout:
    moments = [_moment(ledger, phase, own, name, copies) for phase in ledger.phases]
    return max(moments, key=lambda moment: (moment.peak_bytes, moment.phase == "peak"))


def _moment(ledger: Ledger, phase: str, own: str, name: str, copies: int) -> Layout:
    sizes = {c: _size(ledger, phase, c, own, name) for c in COMPONENTS}
    rows = ledger.at(phase, "activations")
    kept, most = sizes["activations"].bytes, total(ledger.at(FORWARD, "activations"))
    # The copies are there for as long as the activations: a rest of those, an output that is still held, is no sign.
    if name.startswith("amp-") and not own.startswith("amp-") and kept and total(rows) >= _MOSTLY * most:
        sizes["autocast_cache"] = Size(copies, Grade.ESTIMATED)
    return Layout(name, name == own, phase, sizes)


def _size(ledger: Ledger, phase: str, component: str, own: str, name: str) -> Size:
    rows = ledger.at(phase, component)
    recorded = total(rows)
    width = _WIDTHS[name.partition("-")[0]] if name != own and not _alike(name, own) else None
    wanted = recorded if width is None else sum(width(row, ledger) for row in rows)
    return Size(wanted, Grade.OBSERVED if wanted == recorded else Grade.ESTIMATED)


def _alike(one: str, other: str) -> bool:
    """Whether two layouts take the same memory: those of autocast."""
    return one.startswith("amp-") and other.startswith("amp-")


def _in_fp32(row: MemoryRow, _: Ledger) -> int:
    if row.component in {"autocast_cache", "master_weights"} or (row.kind or "").endswith(COPY):
        return 0
    return _resized(row, 4) if row.dtype in HALF_DTYPES and row.component != "other" else row.bytes


def _in_pure(row: MemoryRow, ledger: Ledger) -> int:
    if row.component in {"autocast_cache", "master_weights"} or (row.kind or "").endswith(COPY):
        return 0
    # The count of an optimizer's steps is FP32 always. Losses are taken to stay FP32, and so is what lives for a moment
    # beside them; and so does what the code itself casts to FP32.
    losses = row.phase in ledger.phases_with_losses
    fixed = row.kind == "step" or (row.component == "activations" and (is_cast(row.kind) or is_of_loss(row.kind)))
    shrinks = row.component in _OF_WEIGHTS or row.component == "activations" or not losses
    shrinks &= row.component != "other"
    return _resized(row, 2) if shrinks and not fixed and row.dtype == "float32" else row.bytes


def _under_autocast(row: MemoryRow, ledger: Ledger) -> int:
    if row.component == "master_weights":
        return 0
    if row.component in _OF_WEIGHTS:
        return _resized(row, 4) if row.dtype in HALF_DTYPES else row.bytes
    if row.component != "activations" or not is_float(row):
        return row.bytes
    # A norm's FP32 result is cast for what takes it, and only the cast is kept.
    stays = stays_fp32(row.kind, ledger.device) is not None and "norm" not in base(row.kind)
    if is_sum(row.kind):
        stays = ledger.has_layer_norms  # then what is added to is FP32
    return _resized(row, 4 if stays else 2)


_WIDTHS: dict[str, Callable[[MemoryRow, Ledger], int]] = {"fp32": _in_fp32, "pure": _in_pure, "amp": _under_autocast}


def _resized(row: MemoryRow, width: int) -> int:
    number_format = format_of_dtype(row.dtype or "")
    return row.bytes if number_format is None else row.bytes * width // (number_format.bytes or width)


def _half_copies(run: Run, ledger: Ledger) -> int:
    """Return the bytes of half copies that autocast would keep of weights: matrices that are not looked up in."""
    lookups = {m.module for m in run.modules if m.type.startswith("Embedding")}
    weights = {r.site: r for r in run.tensors("weight")}.values()
    if weights:
        return sum(2 * w.numel for w in weights if len(w.shape) > 1 and w.module not in lookups)
    return sum(_resized(row, 2) for row in ledger.at(ledger.phases[0], "weights"))
