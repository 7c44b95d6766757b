"""What goes into what: the operations of one step as a graph, as local twins have followed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ampdoctor.trace.schema import OpRow

PRODUCTS = frozenset(
    ["mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "convolution", "convolution_overrideable"]
)
"""Matrix products and convolutions."""

FUSED_ATTENTION = "scaled_dot_product"
"""Part of the names of operations that compute attention as a whole."""

CASTS = frozenset({"_to_copy", "copy_"})


def base(row: OpRow) -> str:
    """Return `sqrt` of `aten.sqrt_`."""
    name = row.op.rpartition(".")[2]
    return name if name.startswith("_") or name in CASTS else name.removesuffix("_")


def is_product(row: OpRow) -> bool:
    """Whether it multiplies matrices, alone or as a part of attention."""
    return base(row) in PRODUCTS or FUSED_ATTENTION in row.op


@dataclass
class Flow:
    """The rows of one step.

    Attributes:
        rows: those of one source, by their seq.
    """

    rows: dict[int, OpRow]
    _after: dict[int, list[OpRow]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[OpRow]) -> Flow:
        """Return the graph of `rows`."""
        flow = cls({row.seq: row for row in rows})
        for row in flow.rows.values():
            for seq in row.inputs_from or ():
                flow._after.setdefault(seq, []).append(row)
        return flow

    def parents(self, row: OpRow) -> list[OpRow]:
        """Return the rows whose results go into `row`."""
        return [self.rows[s] for s in row.inputs_from or () if s in self.rows and s != row.seq]

    def children(self, row: OpRow) -> list[OpRow]:
        """Return the rows of the forward pass that the result of `row` goes into."""
        later = self._after.get(row.seq, ())
        return [r for r in later if r.direction == "forward" and r.seq != row.seq]

    def before(self, row: OpRow, through: Callable[[OpRow], bool]) -> Iterator[OpRow]:
        """Yield what goes into `row`, nearest first; what does not pass `through` is yielded and not looked behind."""
        yield from _walk(row, self.parents, through)

    def after(self, row: OpRow, through: Callable[[OpRow], bool]) -> Iterator[OpRow]:
        """Yield what becomes of `row` in the forward pass, nearest first."""
        yield from _walk(row, self.children, through)

    def has_leaf(self, row: OpRow) -> bool:
        """Whether a parameter or data goes into `row`, perhaps cast: what the step has not computed."""
        if not row.inputs_from or -1 in row.inputs_from:
            return True
        casts = [p for p in self.parents(row) if base(p) in CASTS]
        return any(-1 in (p.inputs_from or (-1,)) for p in casts)


def _walk(row: OpRow, following: Callable[[OpRow], list[OpRow]], through: Callable[[OpRow], bool]) -> Iterator[OpRow]:
    seen, front = {row.seq}, [row]
    while front:
        found = {r.seq: r for f in front for r in following(f) if r.seq not in seen}
        seen |= found.keys()
        yield from found.values()
        front = [r for r in found.values() if through(r)]
