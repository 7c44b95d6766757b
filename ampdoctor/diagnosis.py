"""What a diagnosis says. Plain frozen data, like the findings in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.code_lines import CodeLines
from ampdoctor.analysis.ranks import differing_ranks
from ampdoctor.finding import Severity

if TYPE_CHECKING:
    from ampdoctor.finding import Finding
    from ampdoctor.precision import PrecisionUsed
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class NotRun:
    """A rule that said nothing, and why: a missing column (skipped) or an exception of ours (crashed)."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Ignored:
    """A finding that `[tool.ampdoctor]` accepts, with the user's reason."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Examined:
    """What the diagnosis rests on.

    Attributes:
        steps: steps recorded.
        examined_steps: those on which tensors were recorded.
        tensors: tensor rows.
        modules: modules seen.
        gaps: what could not be examined, one sentence each.
    """

    steps: int
    examined_steps: int
    tensors: int
    modules: int
    gaps: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run) -> Examined:
        """Count what was recorded of `run`, and say what was not."""
        gaps = list(run.notices)
        if run.cut:
            killed = "its process was killed before it could finish"
            unfinished = "its record was not completed (a full disk, or its process was killed)"
            gaps.append(f"the run was cut: {killed if run.info.exit_code else unfinished}")
        if run.unfinished and run.elsewhere:
            gaps.append(f"no end of the run was recorded: it goes on, or was killed, on {run.info.host}")
        elif run.unfinished:
            gaps.append("the run has not finished: only what it has recorded so far was judged")
        if run.info.status == "degraded":
            gaps.append(f"the recorder gave up ({run.info.degraded}); the training went on unrecorded")
        if not run.steps:
            gaps.append("no optimizer step was completed")
        gaps += [*_sampled(run), *_compiled(run)]
        dropped = sum(step.dropped is not None for step in run.steps)
        if dropped:
            gaps.append(f"rows of {dropped} steps could not be kept: the disk was too slow to take them")
        if len(run.ranks) > 1:
            gaps.append(_ranks_judged(run))
        examined = sum(step.examined for step in run.steps)
        tensors = run.table("tensors").num_rows
        return cls(len(run.steps), examined, tensors, len(run.modules), tuple(gaps))


def _compiled(run: Run) -> list[str]:
    """Say which modules ran as compiled code: their weights have gradients, and no call of theirs was seen."""
    if not run.info.recording.get("compiled"):
        return []
    table = run.table("tensors").select(["module", "role"]).to_pydict()
    seen: dict[str, set[str]] = {"weight_grad": set(), "activation": set()}
    for module, role in zip(table["module"], table["role"], strict=True):
        seen.get(role, set()).add(module)
    unseen = sorted(seen["weight_grad"] - seen["activation"])
    if not unseen:
        return []
    names = ", ".join(unseen[:_NAMED]) + (", ..." if len(unseen) > _NAMED else "")
    what = "their weights, gradients and updates were judged, their activations were not recorded"
    return [f"{len(unseen)} modules with weights ran as compiled code ({names}): {what}"]


_NAMED = 3
"""Modules that a sentence names."""


def _ranks_judged(run: Run) -> str:
    text = f"{len(run.ranks)} ranks recorded and compared; by every rule, rank {run.ranks[0]} was judged"
    others = differing_ranks(run)
    return f"{text}, and where it differs from others rank {', '.join(map(str, others))}" if others else text


def _sampled(run: Run) -> list[str]:
    errors = run.table("tensors")["sample_error"].drop_null().to_pylist()
    if not errors:
        return []
    worst = 100.0 * max(errors)
    return [f"of {len(errors)} tensors only a sample was counted: its shares may be off by {worst:.1f} points"]


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run.

    Attributes:
        run: path of the run folder; empty for a run built in memory.
        verdict: one sentence.
        precision: the precision that the run really used.
        findings: root findings, worst first, each with its consequences.
        passed: names of the rules that had what they need and found nothing.
        skipped: rules that lacked what they need.
        crashed: rules that failed.
        ignored: findings that the user accepts.
        examined: what this rests on.
        notices: what the user should know of the settings, in sentences.
        lines: where the training is, for findings that name no line of their own.
    """

    run: str
    verdict: str
    precision: PrecisionUsed
    findings: tuple[Finding, ...] = ()
    passed: tuple[str, ...] = ()
    skipped: tuple[NotRun, ...] = ()
    crashed: tuple[NotRun, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    examined: Examined = field(default_factory=lambda: Examined(0, 0, 0, 0))
    notices: tuple[str, ...] = ()
    lines: CodeLines = field(default_factory=CodeLines)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Root findings of severity warning or error."""
        return tuple(f for f in self.findings if f.severity is not Severity.NOTE)
