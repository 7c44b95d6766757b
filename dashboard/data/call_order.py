"""The order of the AMP calls of one step: as recorded, as it should be, and what is out of place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.trace.schema.calls import STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.trace.schema import CallRow

OF_A_STEP = (
    "zero_grad", "scale", "backward", "unscale", "clip_norm", "clip_value", *STEPS, "update", "scheduler_step",
)  # fmt: skip
"""Calls that make up a step."""

CLIPS = ("clip_norm", "clip_value")

LONGEST_ROUND = 4
"""Calls of a micro-batch that are taken together where they repeat."""

CLIP_SCALED, UNSCALED, BYPASSED, TWICE, EARLY_UNSCALE, UNSCALED_TWICE, EARLY_UPDATE, LOST_ZERO, SKIPPED_SCHEDULE = (
    "clip-scaled", "unscaled", "bypassed", "twice", "early-unscale", "unscaled-twice", "early-update", "lost-zero",
    "skipped-schedule",
)  # fmt: skip
"""What can be wrong with a call's place."""


@dataclass(frozen=True)
class Made:
    """A call as it was made.

    Attributes:
        call: its name.
        where: its source line; empty where it is not known.
        target: scaler or optimizer.
        wrong: what is wrong with its place; empty where nothing is.
        times: how often it was made in a row, with those that go with it.
    """

    call: str
    where: str
    target: str
    wrong: str = ""
    times: int = 1


@dataclass(frozen=True)
class Wanted:
    """A call that belongs into a step, and whether it was made."""

    call: str
    made: bool


def calls_of(calls: Sequence[CallRow]) -> list[CallRow]:
    """Return the calls that make up a step, in order."""
    return sorted((call for call in calls if call.call in OF_A_STEP), key=lambda call: call.seq)


def made(calls: Sequence[CallRow], *, applied: bool | None = None) -> list[Made]:
    """Return the calls of one step in the order in which they were made; what repeats is told once."""
    shown: list[Made] = []
    for place, call in enumerate(calls):
        where = f"{call.file}:{call.line}" if call.file and call.line is not None else ""
        shown.append(Made(call.call, where, call.target or "", _wrong(calls, place, applied)))
        shown = _folded(shown)
    return shown


def _folded(shown: list[Made]) -> list[Made]:
    """Return the calls with a round that repeats the one before added to that one."""
    for length in range(1, min(LONGEST_ROUND, len(shown) // 2) + 1):
        last, before = shown[-length:], shown[-2 * length : -length]
        same = all(replace(a, times=1) == replace(b, times=1) for a, b in zip(last, before, strict=True))
        if same and len({b.times for b in before}) == 1:
            return shown[: -2 * length] + [replace(b, times=b.times + 1) for b in before]
    return shown


def right_order(calls: Sequence[CallRow]) -> list[Wanted]:
    """Return the calls that a step of this kind is made of, in the right order."""
    seen = {call.call for call in calls}
    clips = bool(seen & set(CLIPS))
    if scaled(calls):
        names = [
            "zero_grad",
            "scale",
            "backward",
            *(["unscale", "clip_norm"] if clips else []),
            "scaler_step",
            "update",
        ]
    else:
        names = ["zero_grad", "backward", *(["clip_norm"] if clips else []), "optimizer_step"]
    if "scheduler_step" in seen:
        names.append("scheduler_step")
    return [Wanted(name, name in seen or (name == "clip_norm" and clips)) for name in names]


def scaled(calls: Sequence[CallRow]) -> bool:
    """Whether a GradScaler has a part in the step."""
    return any(call.call in {"scale", "unscale", "scaler_step", "update"} for call in calls)


def _wrong(calls: Sequence[CallRow], place: int, applied: bool | None) -> str:
    call, before, after = calls[place], calls[:place], calls[place + 1 :]
    unscaled = call.scaled in {"none", "some"}
    wrong = {
        "backward": UNSCALED if unscaled and _needs_scaling(call, calls) else "",
        "unscale": _wrong_unscale(call, before, after),
        "update": EARLY_UPDATE if any(c.call == "scaler_step" for c in _until(after, {"backward", "update"})) else "",
        "zero_grad": LOST_ZERO if _clears_too_early(call, before, after) else "",
        "scheduler_step": SKIPPED_SCHEDULE if applied is False else "",
    }
    wrong |= dict.fromkeys(CLIPS, CLIP_SCALED if _clips_scaled(before, after) else "")
    wrong |= dict.fromkeys(STEPS, _wrong_step(call, before))
    return wrong.get(call.call, "")


def _clips_scaled(before: Sequence[CallRow], after: Sequence[CallRow]) -> bool:
    since = _since(before, {"backward"})
    scaled_before = any(c.call == "scale" for c in before)
    unscaled = any(c.call in {"unscale", *STEPS} for c in since)
    return scaled_before and not unscaled and any(c.call in {"unscale", "scaler_step"} for c in after)


def _wrong_step(call: CallRow, before: Sequence[CallRow]) -> str:
    since = _since(before, {"backward"})
    if any(c.call in STEPS and c.target == call.target for c in since):
        return TWICE
    if call.call != "optimizer_step" or any(c.call == "unscale" and c.target == call.target for c in before):
        return ""
    return BYPASSED if any(c.call == "backward" and c.scaled == "all" and _reaches(c, call) for c in before) else ""


def _needs_scaling(backward: CallRow, calls: Sequence[CallRow]) -> bool:
    """Whether an optimizer that a scaler steps gets gradients from a backward pass, as far as is known."""
    by_scaler = [c for c in calls if c.call == "scaler_step"]
    if backward.optimizers is None and any(c.call == "optimizer_step" for c in calls):
        return False
    return any(_reaches(backward, step) for step in by_scaler)


def _reaches(backward: CallRow, step: CallRow) -> bool:
    return backward.optimizers is None or step.target is None or step.target in backward.optimizers


def _wrong_unscale(call: CallRow, before: Sequence[CallRow], after: Sequence[CallRow]) -> str:
    since = _since(before, {"update", "scaler_step"})
    if any(c.call == "unscale" and c.target == call.target for c in since):
        return UNSCALED_TWICE
    return EARLY_UNSCALE if any(c.call == "backward" for c in _until(after, set(STEPS))) else ""


def _clears_too_early(call: CallRow, before: Sequence[CallRow], after: Sequence[CallRow]) -> bool:
    since = _since(before, set(STEPS))
    following = _until(after, {"backward"})
    steps = any(c.call in STEPS and (c.target == call.target or call.target is None) for c in following)
    return steps and any(c.call == "backward" for c in since)


def _since(before: Sequence[CallRow], names: set[str]) -> Sequence[CallRow]:
    """Return the calls since the last of `names`, with it."""
    last = max((n for n, call in enumerate(before) if call.call in names), default=0)
    return before[last:]


def _until(after: Sequence[CallRow], names: set[str]) -> Sequence[CallRow]:
    """Return the calls up to the next of `names`, with it."""
    first = next((n for n, call in enumerate(after) if call.call in names), len(after))
    return after[: first + 1]
