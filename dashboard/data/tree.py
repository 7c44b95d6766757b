"""The modules of a model as a tree, folded as far as one screen holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.tensors import Site

FITS = 60
"""Rows that are shown before anybody unfolds anything."""

FEW, FITS_OF_FEW = 12, 150
"""Where fewer would be shown otherwise, this many rows fit: a model of a hundred layers is seen layer by layer."""

DEEPEST = 40
"""Levels that are told apart."""

MOST = 400
"""Rows that are shown at all."""


@dataclass
class Node:
    """A module with what lies in it.

    Attributes:
        path: module path; empty for the model.
        children: its child modules.
        sites: numbers of its own sites.
        count: sites in it, those of the modules below it included.
    """

    path: str
    children: dict[str, Node] = field(default_factory=dict)
    sites: list[int] = field(default_factory=list)
    count: int = 0

    @property
    def folds(self) -> bool:
        """There is something to unfold."""
        return self.count > 1


class Row(NamedTuple):
    """One line of the tree.

    Attributes:
        path: module path, or the name of the site.
        label: what is written: its last part.
        depth: levels below the model.
        unfolded: None where there is nothing to unfold.
        site: number of the site, where it is one.
        parent: place of the line of the module around it; -1 for the model.
    """

    path: str
    label: str
    depth: int
    unfolded: bool | None
    site: int | None
    parent: int


class Lines(NamedTuple):
    """The lines that are shown.

    Attributes:
        rows: from top to bottom.
        of_site: for each site of the run its line, -1 for none.
        left_out: lines beyond `MOST`.
    """

    rows: list[Row]
    of_site: NDArray[np.intp]
    left_out: int


def tree_of(sites: Sequence[Site], role: str, modules: Iterable[str] = ()) -> Node:
    """Return the tree of the modules that have a site of `role`, in the order of `modules`, then of the sites."""
    wanted = [(number, site) for number, site in enumerate(sites) if site.role == role]
    order = {path: place for place, path in enumerate(modules)}
    wanted.sort(key=lambda pair: order.get(pair[1].module, len(order)))
    root = Node("")
    for number, site in wanted:
        node = root
        parts = site.module.split(".", DEEPEST) if site.module else []
        root.count += 1
        for depth, part in enumerate(parts, 1):
            node = node.children.setdefault(part, Node(".".join(parts[:depth])))
            node.count += 1
        node.sites.append(number)
    return root


def lines_of(root: Node, sites: Sequence[Site], toggled: AbstractSet[str]) -> Lines:
    """Return the lines of a tree; `toggled` modules are folded where they would not be, and the other way round."""
    unfolded = _fitting(root) ^ toggled | {""}
    of_site = np.full(len(sites), -1, np.intp)
    rows: list[Row] = []
    left_out = 0
    waiting: list[tuple[Node | int, int, str, int]] = [(root, 0, "", -1)]
    while waiting:
        one, depth, label, parent = waiting.pop()
        place = len(rows)
        if place >= MOST:
            left_out += 1
            of_site[_within(one)] = parent
            continue
        if isinstance(one, int):
            rows.append(Row(sites[one].name, sites[one].slot, depth, None, one, parent))
            of_site[one] = place
            continue
        state = one.path in unfolded if one.folds else None
        inside = _within(one)
        alone = inside[0] if len(inside) == 1 and not one.folds else None
        path = one.path if alone is None else sites[alone].name
        rows.append(Row(path, label if alone is None else _tail(sites[alone], label), depth, state, alone, parent))
        if state:
            children: list[tuple[Node | int, int, str, int]] = [
                *((number, depth + 1, "", place) for number in one.sites),
                *((child, depth + 1, name, place) for name, child in one.children.items()),
            ]
            waiting += reversed(children)
        else:
            of_site[inside] = place
    return Lines(rows, of_site, left_out)


def _tail(site: Site, label: str) -> str:
    """Return how a module with a single site is called: by both."""
    start = site.module.rfind(label) if label else len(site.module)
    return site.name[max(start, 0) :].removeprefix(".")


def _fitting(root: Node) -> frozenset[str]:
    """Return the modules to unfold, level by level as long as all of a level fits."""
    unfolded: set[str] = set()
    level, shown = [root], 1
    while level:
        inside = [node for node in level if node.folds or node is root]
        more = sum(len(node.children) + len(node.sites) for node in inside)
        if shown + more > (FITS_OF_FEW if shown < FEW else FITS):
            break
        shown += more
        unfolded |= {node.path for node in inside}
        level = [child for node in inside for child in node.children.values()]
    return frozenset(unfolded)


def _within(node: Node | int) -> list[int]:
    """Return the numbers of all sites below a node."""
    if isinstance(node, int):
        return [node]
    found: list[int] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        found += one.sites
        waiting += one.children.values()
    return found
