"""Processes that belong together: the ranks of one distributed training, and what a launcher has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.attach.process import PROC, process
from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.attach.process import Process

_GROUP = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Variables that the ranks of one training have in common."""


def ranks_of(target: Process) -> list[Process]:
    """Return the ranks of the training that `target` is one of, or has started, on this machine, by rank.

    Raises:
        AmpDoctorError: it was not started as one of several ranks, and has started none.
    """
    own = target.environment()
    if "RANK" not in own or "WORLD_SIZE" not in own:
        started = next((c for c in children_of(target.pid) if {"RANK", "WORLD_SIZE"} <= set(c.environment())), None)
        if started is not None:
            return ranks_of(started)
        raise AmpDoctorError(
            f"{target.title} is no rank of a distributed training: it has no RANK and WORLD_SIZE in its environment",
            hint="leave out --all-ranks",
        )
    group = [own.get(name) for name in _GROUP]
    found = {target.pid: (int(own["RANK"]), target)}
    for other in _own_processes():
        environment = other.environment()
        if "RANK" in environment and [environment.get(name) for name in _GROUP] == group:
            rank = int(environment["RANK"])
            # Of a rank and the workers that it has started, which inherit its environment, the rank came first.
            if all(rank != known for known, _ in found.values()):
                found[other.pid] = (rank, other)
    return [one for _, one in sorted(found.values(), key=lambda item: item[0])]


def children_of(pid: int) -> list[Process]:
    """Return the Python processes that `pid` has started, and that those have started."""
    found: list[Process] = []
    parents = {pid}
    for other in _own_processes():
        if other.status("PPid").isdecimal() and int(other.status("PPid")) in parents:
            parents.add(other.pid)
            found.append(other)
    return found


def check_torch(target: Process) -> None:
    """Refuse a process without torch before it is touched: a launcher that waits for a training would never answer.

    Raises:
        AmpDoctorError: it has not loaded torch.
    """
    if not target.has_torch():
        raise AmpDoctorError(
            f"cannot record {target.title}: torch has not been imported there", hint=children_hint(target.pid)
        )


def children_hint(pid: int) -> str:
    """Return what to attach to in the place of `pid`, as far as that can be told: preferably what has torch."""
    children = children_of(pid)
    pids = ", ".join(str(child.pid) for child in [c for c in children if c.has_torch()] or children)
    return f"it has started other Python processes; try PID {pids}" if pids else ""


def _own_processes() -> Iterator[Process]:
    """Yield the Python processes that can be attached to, oldest first as far as their numbers tell."""
    for pid in sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()):
        try:
            yield process(pid)
        except AmpDoctorError:
            continue
