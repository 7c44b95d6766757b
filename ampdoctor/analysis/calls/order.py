"""The order of AMP calls, read as what happened to each optimizer's gradients until its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, ScalerRow


@dataclass(frozen=True)
class ScaledStep:
    """One step of an optimizer through an enabled scaler, and the calls that made its gradients.

    Attributes:
        step: index of the step.
        optimizer: name of the optimizer.
        scale: the scaler's scale, by which the gradients are divided.
        backwards: backward passes that reach the optimizer, since its gradients were last cleared.
        clips: calls that clipped its gradients while they were still multiplied by the scale.
    """

    step: int
    optimizer: str
    scale: float
    backwards: tuple[CallRow, ...]
    clips: tuple[CallRow, ...]


def when(row: CallRow | ScalerRow) -> tuple[int, int]:
    """Return when a call was made or a scaler did something, in the order that both share."""
    return row.step, row.seq


@once_per_run
def calls_in_order(run: Run) -> tuple[CallRow, ...]:
    """Return all calls in the order in which they were made; rows are in that in which their steps were written."""
    return tuple(sorted(run.calls, key=when))


@once_per_run
def scaled_steps(run: Run) -> tuple[ScaledStep, ...]:
    """Return every optimizer step that went through an enabled scaler, in order."""
    scales = {(row.step, row.optimizer): row.scale for row in run.scaler if row.event in {"step", "skip"}}
    reach = Reach(run)
    follower = _Follower(scales, reach)
    for call in calls_in_order(run):
        if call.error is None:
            follower.take(call)
    return tuple(follower.found)


def source_of(call: CallRow) -> str | None:
    """Return `file:line` of the user's code that made `call`."""
    return f"{call.file}:{call.line}" if call.file and call.line is not None else None


class Reach:
    """Which optimizers a backward pass reaches: as recorded, as its line always did, or the only one there is."""

    def __init__(self, run: Run) -> None:
        stepped = {c.target for c in run.calls if c.call in {"scaler_step", "optimizer_step"} and c.target}
        self.only = next(iter(stepped)) if len(stepped) == 1 else None
        self._by_line: dict[tuple[str | None, int | None], frozenset[str]] = {}
        for call in run.calls:
            # One that reaches none, of master weights that get copies of the gradients, is known to reach none.
            if call.call == "backward" and call.optimizers is not None:
                reached = frozenset(call.optimizers)
                key = (call.file, call.line)
                # A helper's line may reach now these and now those: then only what it always reaches is known.
                self._by_line[key] = self._by_line.get(key, reached) & reached

    def of(self, call: CallRow) -> frozenset[str]:
        """Return the optimizers that the backward pass `call` reaches, as far as is known."""
        if call.optimizers is not None:
            return frozenset(call.optimizers)
        only = frozenset({self.only} if self.only else ())
        return self._by_line.get((call.file, call.line), only)


class _Follower:
    """Follows the calls in order; what it holds by optimizer is what happened since its gradients were cleared."""

    def __init__(self, scales: dict[tuple[int, str | None], float | None], reach: Reach) -> None:
        self.found: list[ScaledStep] = []
        self._scales = scales
        self._reach = reach
        self._backwards: dict[str, list[CallRow]] = {}
        self._clips: dict[str, list[CallRow]] = {}
        self._unscaled: set[str | None] = set()

    def take(self, call: CallRow) -> None:
        match call.call:
            case "backward":
                for name in self._reach.of(call):
                    self._backwards.setdefault(name, []).append(call)
            case "zero_grad":
                self._backwards.pop(call.target or "", None)
            case "unscale":
                self._unscaled.add(call.target)
            case "clip_norm" | "clip_value":
                self._clip(call, call.target or self._reach.only)
            case "scaler_step" if call.target:
                self._step(call, call.target)
            case "optimizer_step":
                self._forget(call.target)
            case _:
                pass

    def _clip(self, call: CallRow, optimizer: str | None) -> None:
        """Take a clip of scaled gradients; whose they are may be unknown, and then it is left unjudged."""
        if optimizer is not None and optimizer not in self._unscaled:
            self._clips.setdefault(optimizer, []).append(call)

    def _step(self, call: CallRow, optimizer: str) -> None:
        scale = self._scales.get((call.step, optimizer))
        if scale is not None:
            clips = self._clips.get(optimizer, [])
            backwards = self._backwards.get(optimizer, [])
            self.found.append(ScaledStep(call.step, optimizer, scale, tuple(backwards), tuple(clips)))
        self._forget(optimizer)

    def _forget(self, optimizer: str | None) -> None:
        self._unscaled.discard(optimizer)
        self._clips.pop(optimizer or "", None)
        # Gradients stay until zero_grad, but each backward pass is judged at the first step that uses it.
        self._backwards.pop(optimizer or "", None)
