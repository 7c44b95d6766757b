"""The line of the code that a step's backward pass starts at, for what is about a step and no call of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

_CALLS = ("backward", "scaler_step", "optimizer_step")
"""What a step is known by, the best first."""


@dataclass(frozen=True)
class CodeLines:
    """Where the training is.

    Attributes:
        script: its script; None where neither the command nor a call names one.
        steps: `(step, file:line)` of the backward pass, or else the optimizer's step; it holds until the next.
    """

    script: str | None = None
    steps: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, run: Run) -> CodeLines:
        """Read them from the calls and the command of `run`."""
        found: dict[int, tuple[int, str]] = {}
        for call in run.calls:
            if call.call not in _CALLS or not call.file or not call.line:
                continue
            entry = (_CALLS.index(call.call), f"{_absolute(call.file, run.info.cwd)}:{call.line}")
            if call.step not in found or entry[0] < found[call.step][0]:
                found[call.step] = entry
        steps: list[tuple[int, str]] = []
        for step, (_, source) in sorted(found.items()):
            if not steps or steps[-1][1] != source:
                steps.append((step, source))
        named = next((_absolute(word, run.info.cwd) for word in run.info.command if word.endswith(".py")), None)
        return cls(named or (steps[0][1].rpartition(":")[0] if steps else None), tuple(steps))

    def at(self, step: int | None) -> str | None:
        """Return `file:line` for `step`, without one for the first; else the script's first line, if it is known."""
        known = [source for first, source in self.steps if step is not None and first <= step]
        if known or self.steps:
            return known[-1] if known else self.steps[0][1]
        return self.start

    @property
    def start(self) -> str | None:
        """The script's first line, for what is about the run as a whole."""
        return f"{self.script}:1" if self.script else None


def _absolute(file: str, cwd: str) -> str:
    if not cwd or PurePosixPath(file).is_absolute() or PureWindowsPath(file).is_absolute() or file.startswith("<"):
        return file
    return f"{cwd.rstrip('/')}/{file}"
