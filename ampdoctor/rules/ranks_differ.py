"""The rule ranks-differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.ranks import BROKEN_GRADIENTS, BROKEN_LOSS, SCALE, SKIPPED, Difference, differences
from ampdoctor.analysis.wording import counted, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import ANOTHER_RANK, Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run

_NAMED = 8
"""Ranks that a sentence names; of more it says how many."""


def _run(*losses: float, skips: Sequence[bool] = ()) -> RunBuilder:
    run = RunBuilder()
    for loss, skipped in zip(losses, skips or [False] * len(losses), strict=True):
        run.step(loss=loss, applied=not skipped, loss_scale=1024.0)
    return run


def _overflow(infinite: bool) -> RunBuilder:
    """A step that the scaler skips, and one that it takes; whether this rank is why."""
    run = RunBuilder().step(loss=2.0, applied=False, loss_scale=1024.0)
    run.tensor("0", "grad_output", exponents={0: 9}, posinf=int(infinite))
    return run.step(loss=2.0, loss_scale=512.0).tensor("0", "grad_output", exponents={0: 10})


class RanksDiffer(Rule):
    """One rank is not like the others: it alone has NaN, or it skips steps that the others take.

    What it means
        All ranks train one model. Their batches differ, so one of them can meet numbers that the others do not; what
        they share afterwards (gradients, the decision to skip a step, the loss scale) has to be the same everywhere.

    Why it matters
        NaN of one rank becomes everybody's once gradients are shared, and the other ranks show no cause for it. Where
        one rank skips a step that others take, or has another loss scale, the ranks train different models from there
        on, and nothing says so.

    How to fix
        Look at the batch and the activations of the rank that is named. Share gradients before `scaler.step`, or share
        what the scaler has found in them.

    Not to be mistaken for
        Losses that differ from rank to rank, as their batches do. A step that all ranks skip: where the gradients of
        one rank alone overflow now and then, and training goes on, the scaler does what it is for, and that is a note.
    """

    code = "AMP508"
    name = "ranks-differ"
    severity = Severity.ERROR
    needs = ANOTHER_RANK
    thresholds = {"steps": Threshold(1, "ranks that went apart once do not come together again")}
    HEALTHY = (
        Example("other batches, other losses", lambda: _run(2.0, 1.5).beside(_run(2.2, 1.4))),
        Example(
            "a step that both skip",
            lambda: _run(2.0, 1.5, skips=[True, False]).beside(_run(2.2, 1.4, skips=[True, False])),
        ),
        Example("gradients of one rank overflow once, and all skip", lambda: _overflow(False).beside(_overflow(True))),
    )
    SICK = (
        Example("a loss that is NaN on one rank", lambda: _run(2.0, 1.5, 1.4).beside(_run(2.2, float("nan"), 1.4))),
        Example(
            "one of three ranks skips",
            lambda: _run(2.0, 1.5).beside(_run(2.2, 1.4), _run(2.1, 1.6, skips=[False, True])),
        ),
    )

    def lacks(self, run: Run) -> list[str]:
        """Return that there is no other rank, where that is so."""
        return list(self.needs) if len(run.ranks) < 2 else []

    def check(self, run: Run) -> Iterator[Finding]:
        found = [d for d in differences(run) if len(d.steps) >= self.threshold("steps")]
        if not found:
            return
        # What comes first in time is the cause of the rest; of what begins together, what comes first in a step.
        first = min(found, key=lambda d: d.steps[0])
        said = _sentence(first)
        yield self.finding(
            f"{said[0].upper()}{said[1:]}, from step {first.steps[0]} on.",
            evidence=[_evidence(d) for d in found],
            fixes=[_shared() if first.kind in (SKIPPED, SCALE) else _looked_at(first)],
            location=Location(first_step=first.steps[0], last_step=first.steps[-1], ranks=first.ranks),
            severity=_severity(run, found),
        )


def _severity(run: Run, found: Sequence[Difference]) -> Severity:
    """Where all ranks skipped what one could not take, and went on, a scaler has done what it is for."""
    kinds = {d.kind for d in found}
    skipped = {s.step for s in run.steps if s.applied is False}
    last = max((s.step for s in run.steps if s.applied), default=-1)
    if not kinds <= {BROKEN_LOSS, BROKEN_GRADIENTS} or any(set(d.steps) - skipped or d.steps[-1] > last for d in found):
        return Severity.ERROR
    return Severity.WARNING if BROKEN_LOSS in kinds else Severity.NOTE


def _sentence(found: Difference) -> str:
    ranks, others = _named(found.ranks), _named(found.others)
    more = len(found.ranks) > 1
    if found.kind == SKIPPED:
        does, do_not = ("skip", "take") if found.fact else ("take", "skip")
        return f"{ranks} {does}{'' if more else 's'} steps that {others} {do_not}{'' if len(found.others) > 1 else 's'}"
    if found.kind == SCALE:
        return f"the loss scale of {ranks} ({scale_text(found.fact)}) is not that of {others}"
    if found.kind == BROKEN_LOSS:
        return f"the loss of {ranks} is NaN or infinite, and that of {others} is not"
    return f"gradients of {ranks} are NaN or infinite before they are shared, and those of {others} are not"


def _evidence(found: Difference) -> Evidence:
    name = f"{found.kind.replace(' ', '_')}_steps"
    return Evidence(name, len(found.steps), f"On {counted(len(found.steps), 'step')}, {_sentence(found)}.")


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) > _NAMED:
        return f"{len(ranks)} ranks ({', '.join(map(str, ranks[:_NAMED]))}, ...)"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _looked_at(found: Difference) -> Fix:
    code = f"""\
if dist.get_rank() == {found.ranks[0]} and not torch.isfinite(loss):
    torch.save(batch, "batch_of_rank_{found.ranks[0]}.pt")"""
    expected = "The batch that breaks the loss can be looked at, and run again on one process."
    return Fix(f"Keep the batch of rank {found.ranks[0]}", code, expected)


def _shared() -> Fix:
    code = """\
loss_is_scaled.backward()
for p in model.parameters():  # on all ranks, before the scaler looks at them
    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
scaler.step(optimizer)
scaler.update()"""
    expected = "All ranks see the same gradients, and so skip the same steps; DDP and FSDP2 do this by themselves."
    return Fix("Share gradients before scaler.step()", code, expected)
