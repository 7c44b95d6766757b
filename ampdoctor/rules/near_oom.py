"""The rule near-oom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.devices import looks, with_reason
from ampdoctor.analysis.wording import bytes_text, counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow

_GIB = 2**30


def _run(
    *peaks: float, used: float = 78, process: float | None = None, processes: int = 1, looked_at: int | None = None
) -> RunBuilder:
    """A run on a GPU of 80 GiB, with torch's peak after each step and what the driver saw in use, in GiB."""
    run = RunBuilder(device="cuda: NVIDIA A100-SXM4-80GB")
    for number, peak in enumerate(peaks):
        run.step(loss=2.0, peak_bytes=int(peak * _GIB), allocated_bytes=8 * _GIB).gpu(
            memory_used_bytes=int(used * _GIB), memory_total_bytes=80 * _GIB, processes=processes,
            process_bytes=None if process is None else int(process * _GIB),
        )  # fmt: skip
        if number == looked_at:
            run.twin_step()
    return run


@dataclass(frozen=True)
class _Filled:
    """What a GPU had to hold at once, in bytes.

    Attributes:
        total: what it has.
        peak: torch's tensors at their most.
        used: all that the driver saw in use at most, torch's cache included.
        others: what was not the training's own then; None where the driver does not say whose memory it is.
        processes: those that computed on it then.
        grown: what the peak grew by in the second half of the run, where that is more than nothing.
    """

    total: int
    peak: int
    used: int
    others: int | None
    processes: int | None
    grown: int

    @property
    def left(self) -> int:
        """What was left at the peak, if all that others held was held then."""
        return self.total - self.peak - (self.others or 0)


class NearOom(Rule):
    """The GPU's memory was nearly full: a slightly larger batch, or another process, ends the run.

    What it means
        At their peak, the tensors of the training and what other processes held took all but a tenth of the GPU's
        memory. CUDA's context and libraries need some of that tenth, and torch's allocator, which hands out memory in
        blocks, can't use every gap between tensors.

    Why it matters
        It goes well for as long as every step is like the last one. A longer sequence, an evaluation, a checkpoint
        that is loaded on the GPU or a second process ends it with out-of-memory, often hours into the run. Where the
        peak still grows in the second half of the run, that is a warning; else a note.

    How to fix
        Smaller micro-batches with gradient accumulation, or activation checkpointing. Where tensors differ in size from
        step to step, `expandable_segments` leaves fewer gaps. Where other processes hold memory, move them.

    Not to be mistaken for
        A GPU that the driver shows as full although the tensors take far less: torch keeps what it once got, and gives
        it back when something does not fit. A leak, which is memory-leak-across-steps.
    """

    code = "AMP604"
    name = "near-oom"
    severity = Severity.NOTE
    needs = ("steps.peak_bytes", "gpu.memory_total_bytes")
    after = ("memory-leak-across-steps",)
    thresholds = {
        "left_share": Threshold(
            0.1,
            "of the memory: context and libraries take hundreds of MiB that torch does not count, and its allocator "
            "was seen to waste up to 43 % where tensors differ in how long they live (arXiv 2507.16274)",
        ),
        "growth_share": Threshold(0.01, "of the peak: batches of one shape repeat theirs to the byte"),
        "warm_up_steps": Threshold(10, "by then optimizer state and the allocator's pool have been made"),
    }
    HEALTHY = (
        Example("a second opinion that filled it", lambda: _run(50, 50, 50, *[76] * 27, looked_at=3)),
        Example("half of the memory", lambda: _run(*[40] * 30, used=45)),
        Example("a full cache, and tensors that take far less", lambda: _run(*[50] * 30, used=79.5)),
        Example("another process, and room for both", lambda: _run(*[30] * 30, used=65, process=35, processes=2)),
        Example("a peak that is a tenth away", lambda: _run(*[71] * 30, used=76)),
    )
    SICK = (
        Example("tensors that fill it", lambda: _run(*[76] * 30)),
        Example("another process that fills it", lambda: _run(*[40] * 30, used=79, process=45, processes=2)),
        Example("a peak that grows with the batches", lambda: _run(*[60 + n * 0.5 for n in range(30)])),
    )

    def lacks(self, run: Run) -> list[str]:
        return with_reason(run, super().lacks(run))

    def check(self, run: Run) -> Iterator[Finding]:
        steps = _own(run)
        filled = self._filled(run, steps)
        if filled is not None and filled.left <= self.threshold("left_share") * filled.total:
            first = next(s.step for s in steps if s.peak_bytes == filled.peak)
            yield self._finding(filled, Location((), first, steps[-1].step))

    def _filled(self, run: Run, steps: Sequence[StepRow]) -> _Filled | None:
        seen = [r for r in looks(run) if r.memory_used_bytes is not None and r.memory_total_bytes]
        if not seen or not steps:
            return None
        peak = max(s.peak_bytes or 0 for s in steps)
        fullest = max(seen, key=lambda r: r.memory_used_bytes or 0)
        used, own = fullest.memory_used_bytes or 0, fullest.process_bytes
        others = None if own is None else max(0, used - own)
        return _Filled(fullest.memory_total_bytes or 0, peak, used, others, fullest.processes, self._grown(steps))

    def _grown(self, steps: Sequence[StepRow]) -> int:
        warm = [s.peak_bytes or 0 for s in steps if s.step >= self.threshold("warm_up_steps")]
        if not warm:
            return 0
        middle, last = warm[len(warm) // 2], warm[-1]
        return last - middle if last - middle >= self.threshold("growth_share") * last else 0

    def _finding(self, filled: _Filled, location: Location) -> Finding:
        left = max(filled.left, 0)
        share = percent(left / filled.total)
        evidence = [
            Evidence(
                "peak_bytes", filled.peak,
                f"torch's tensors took {bytes_text(filled.peak)} at their peak, first on step {location.first_step}, "
                f"of {bytes_text(filled.total)} that the GPU has.",
            ),
            *_others(filled),
            Evidence(
                "left_bytes", left,
                f"That leaves {bytes_text(left)} ({share}) for CUDA's context, its libraries and gaps between tensors.",
            ),
            Evidence("used_bytes", filled.used, f"The driver saw {bytes_text(filled.used)} in use at most."),
        ]  # fmt: skip
        if filled.grown:
            text = f"The peak grew by {bytes_text(filled.grown)} in the second half of the run."
            evidence.append(Evidence("grown_bytes", filled.grown, text))
        return self.finding(
            f"The GPU's memory was nearly full: {bytes_text(left)} of {bytes_text(filled.total)} left at the peak.",
            evidence=evidence,
            fixes=_fixes(filled),
            location=location,
            # Whose memory it is, is hidden in most containers: there is at least as little left as we say.
            confidence=Confidence.HIGH if filled.others is not None else Confidence.MEDIUM,
            severity=Severity.WARNING if filled.grown else None,
        )


def _own(run: Run) -> list[StepRow]:
    """Return the steps whose peak, the highest so far, is the training's: not those once a second opinion held more.

    What a second opinion or the timing of precisions takes stays in the allocator's peak for the rest of the run.
    """
    ours = {t.step for t in run.twin_steps if t.operations} | {p.step for p in run.paces if p.rounds}
    own: list[StepRow] = []
    before, raised = 0, False
    for step in run.steps:
        if step.peak_bytes is not None:
            if step.peak_bytes > before:
                before, raised = step.peak_bytes, step.step in ours
            if not raised:
                own.append(step)
    return own


def _others(filled: _Filled) -> list[Evidence]:
    if not filled.others:
        return []
    among = f" ({counted(filled.processes, 'process', 'processes')} computed on it)" if filled.processes else ""
    text = f"{bytes_text(filled.others)} more were held by other processes and the driver{among}."
    return [Evidence("other_bytes", filled.others, text)]


def _fixes(filled: _Filled) -> list[Fix]:
    fixes = [
        Fix(
            "Take smaller micro-batches",
            "DataLoader(dataset, batch_size=batch_size // 2)\n"
            "(loss / 2).backward()  # and optimizer.step() after every second one",
            "Activations, and with them most of what comes and goes within a step, are halved.",
        ),
        Fix(
            "Compute activations again instead of keeping them",
            "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)",
            "Of each block only its input is kept; the step takes about a third longer.",
        ),
        Fix(
            "Let the allocator leave fewer gaps",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py  # where shapes differ by step",
            "Memory that is free but in pieces can be used.",
        ),
    ]
    if (filled.others or 0) > max(filled.left, 0) and (filled.processes or 0) > 1:
        fixes.insert(
            0,
            Fix(
                "Move the other processes",
                "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
                f"Up to {bytes_text(filled.others or 0)} become free.",
                Grade.OBSERVED,
            ),
        )
    return fixes
