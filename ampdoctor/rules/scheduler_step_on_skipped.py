"""The rule scheduler-step-on-skipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.calls.order import calls_in_order, calls_named, source_of, when
from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.calls.stepping import taken_steps
from ampdoctor.analysis.wording import counted, number, percent, scale_code
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(total: int, *, skips: int = 8, steps: int = 24, guarded: bool = False, every: int = 1) -> RunBuilder:
    """A linear warm-up to 0.1 over `total` scheduler steps, one after each `every` iterations."""
    run, done = RunBuilder(), 0
    for step in range(steps):
        skip = step < skips
        run.step(loss=2.0, applied=not skip).call("backward", optimizers=["optimizer0"])
        run.call("scaler_step", target="optimizer0")
        run.scaler("skip" if skip else "step", optimizer="optimizer0", scale=1024.0)
        if not (guarded and skip) and step % every == every - 1:
            before, after = (0.1 * min(n / total, 1.0) for n in (done, done + 1))
            rates = {"lr_before": before, "lr_after": after, "base_lr": 0.1}
            run.call("scheduler_step", target="optimizer0", file="train.py", line=50, **rates)
            done += 1
    return run


@dataclass
class _Line:
    """Steps of one scheduler: all of them, and those with nothing but skipped steps since the one before."""

    first_step: int
    optimizer: str
    steps: list[CallRow] = field(default_factory=list)
    wasted: list[CallRow] = field(default_factory=list)

    @property
    def peak(self) -> float:
        """The largest learning rate known of: what the schedule multiplies, or what it has reached."""
        rates = [r for c in self.steps for r in (c.base_lr, c.lr_before, c.lr_after) if r is not None]
        return max(rates, default=0.0)

    @property
    def moved(self) -> float | None:
        """How far the rate has moved on the wasted steps, in all."""
        moves = [
            abs(c.lr_after - c.lr_before) for c in self.wasted if c.lr_after is not None and c.lr_before is not None
        ]
        return sum(moves) if moves and self.peak else None


class SchedulerStepOnSkipped(Rule):
    """The learning rate schedule advances on steps that the scaler has skipped.

    What it means
        `scheduler.step()` is called on every iteration, also where `scaler.step` has found an infinity and has not
        called the optimizer. The schedule is used up while nothing is learned: a warm-up is over before the first
        update, a decay begins too early. torch's warning "lr_scheduler.step() before optimizer.step()" comes from it.

    Why it matters
        After a few skips of a long schedule, nothing is lost, and this is a note. It is a warning where the rate has
        gone through a noticeable part of its range meanwhile: short schedules, short warm-ups, many skips.

    How to fix
        Advance the scheduler only if the step was taken: the scale has not fallen in `scaler.update()`.

    Not to be mistaken for
        A scheduler that is stepped once per epoch, in which steps were taken. A scheduler that goes by a metric.
    """

    code = "AMP411"
    name = "scheduler-step-on-skipped"
    severity = Severity.WARNING
    needs = ("calls", "scaler")
    after = (
        "scale-collapse", "scale-hunting", "stale-inf-grads", "scaler-state-not-restored", "nan-not-precision",
        "activation-overflow", "loss-overflow", "attention-overflow", "norm-overflow", "gradient-penalty-scaled",
        "optimizer-stepped-twice", "loss-scale-too-large", "scaler-update-mid-iteration", "scale-below-one",
        "eps-underflow", "log-of-zero-underflow", "cancellation-half", "backward-under-autocast", "scaler-unneeded",
    )  # fmt: skip
    thresholds = {
        "consumed": Threshold(
            0.05, "a twentieth of the rate's range: less is lost in what people choose it by (1e-3, 3e-4)"
        )
    }
    HEALTHY = (
        Example("a guarded scheduler", lambda: _run(10, guarded=True)),
        Example("calibration skips of a long warm-up", lambda: _run(1000, steps=100)),
        Example("once per epoch", lambda: _run(6, every=12)),
        Example("no skips", lambda: _run(10, skips=0)),
    )
    SICK = (
        Example("a warm-up of 10 steps, 8 of them skipped", lambda: _run(10)),
        Example("a schedule of 100 steps", lambda: _run(100, skips=12, steps=60)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        for line in _lines(run):
            if line.wasted:
                yield self._finding(run, line)

    def _finding(self, run: Run, line: _Line) -> Finding:
        wasted, moved = line.wasted, line.moved
        if moved is not None:
            moved /= run.judged_calls  # the schedule goes on where calls were not judged, too
        consumed = None if moved is None else moved / line.peak
        share = len(wasted) / len(line.steps)
        harmed = consumed is not None and consumed >= self.threshold("consumed")
        source = source_of(wasted[0])
        evidence = [
            Evidence(
                "steps_wasted", len(wasted),
                f"{len(wasted)} of {counted(len(line.steps), 'scheduler step')} follow a step that the scaler skipped, "
                "with none taken in between.",
            ),
            Evidence("wasted_share", share, f"That is {percent(share)} of the schedule so far."),
        ]  # fmt: skip
        if moved is not None and consumed is not None:
            text = (
                f"On them the learning rate moves by {number(moved)} in all, {percent(consumed)} of its peak of "
                f"{number(line.peak)}."
            )
            evidence.append(Evidence("rate_consumed", consumed, text))
        return self.finding(
            f"The learning rate schedule advances on skipped steps: {len(wasted)} of {len(line.steps)} scheduler steps "
            "are used up while nothing is updated.",
            evidence=evidence,
            fixes=[_fix(source), *_lower_scale(run)],
            location=Location((), wasted[0].step, wasted[-1].step, source=source),
            severity=Severity.WARNING if harmed else Severity.NOTE,
        )


def _lines(run: Run) -> list[_Line]:
    """Return the schedulers by the line that steps them and their optimizer."""
    if not calls_named(run, "scheduler_step"):
        return []
    outcomes = {when(t.call): t.skipped for t in taken_steps(run)}
    lines: dict[tuple[str, str | None, int | None], _Line] = {}
    since: dict[str, list[bool | None]] = {}
    passed: dict[tuple[str, str | None, int | None], int] = {}
    for call in calls_in_order(run):
        name = call.target
        if name is None or call.error is not None:
            continue
        if when(call) in outcomes:
            since.setdefault(name, []).append(outcomes[when(call)])
        elif call.call == "scheduler_step":
            key = (name, call.file, call.line)
            line = lines.setdefault(key, _Line(call.step, name))
            line.steps.append(call)
            # Two schedulers of one optimizer each look at what has come since their own last step.
            new = since.get(name, [])[passed.get(key, 0) :]
            passed[key] = len(since.get(name, []))
            if new and all(skipped is True for skipped in new):
                line.wasted.append(call)
    return list(lines.values())


def _fix(source: str | None) -> Fix:
    code = f"""\
before = scaler.get_scale()
scaler.step(optimizer)
scaler.update()
if scaler.get_scale() >= before:  # it falls only where the step was skipped
    scheduler.step(){comment(source)}"""
    expected = "The schedule counts updates, and the warm-up is gone through in full."
    return Fix("Advance the scheduler only on steps that were taken", code, expected, Grade.OBSERVED)


def _lower_scale(run: Run) -> list[Fix]:
    """Start the scaler where its first backoffs have ended, if it had any."""
    fixes = []
    for updates in scale_updates(run).values():
        first = list(takewhile(lambda u: u.event == "backoff", updates))
        if len(first) > 1 and len(first) < len(updates):
            code = f'scaler = torch.amp.GradScaler("{device_type(run)}", init_scale={scale_code(first[-1].after)})'
            expected = f"The first {len(first)} skips, which only look for the scale, are avoided."
            fixes.append(Fix("Or start the scaler where it ends up anyway", code, expected))
    return fixes
