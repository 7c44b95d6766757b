"""The rule scaler-state-not-restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.resumed import Resumed, resumed
from ampdoctor.analysis.wording import counted, scale_text
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _steps(run: RunBuilder, scaler: str, scale: float, skips: int, *, losses: tuple[float, float] = (2.0, 2.0)) -> None:
    """Twelve steps that begin with `skips`; the loss goes from the first of `losses` to the second."""
    steps = 12
    for step in range(steps):
        skip = step < skips
        if step:
            run.step(loss=losses[0] if step < steps // 2 else losses[1])
        run.call("backward", scaled="all", optimizers=["optimizer0"])
        run.call("scaler_step", target="optimizer0").scaler(
            "skip" if skip else "step", scaler=scaler, optimizer="optimizer0", scale=scale, found_inf=skip
        )
        after = scale / 2 if skip else scale
        run.scaler("backoff" if skip else "hold", scaler=scaler, scale=scale, scale_after=after)
        scale = after


def _new_process(*, entries: int | None = 4, restored: bool = False, skips: int = 8) -> RunBuilder:
    """A run that loads the optimizer's state (None: it does not) and begins with `skips`."""
    run = RunBuilder().step(loss=2.0).scaler("seen", enabled=True)
    if entries is not None:
        run.call("load_state", target="optimizer0", entries=entries, file="train.py", line=20)
    if restored:
        run.call("load_state", target="scaler0")
    _steps(run, "scaler0", 65536.0, skips)
    return run


def _same_process(
    *, scaler: str = "scaler1", start: float = 65536.0, skips: int = 8, entries: int = 4, loss: float = 1.0
) -> RunBuilder:
    """A training that is torn down, and goes on in the same process with the given loss."""
    run = RunBuilder().optimizer("SGD").step(loss=2.0)
    _steps(run, "scaler0", 256.0, 0, losses=(2.0, 1.0))
    run.step(loss=loss)
    run.call("load_state", target="optimizer0", entries=entries, file="train.py", line=20)
    _steps(run, scaler, start, skips, losses=(loss, loss))
    return run


class ScalerStateNotRestored(Rule):
    """A training resumes from a checkpoint with a new GradScaler: its scale starts from the beginning.

    What it means
        The optimizer got its state back, and the scaler did not: `scaler.state_dict()` is not in the checkpoint, or is
        not loaded. The scale is back at its initial value, far too high for these gradients.

    Why it matters
        A burst of steps is skipped right after each resume, until the scale has come down again; schedules and data go
        on meanwhile, and the loss jumps. A job that is restarted every few hours pays each time.

    How to fix
        Save `scaler.state_dict()` with the model and the optimizer, and load it before the first step.

    Not to be mistaken for
        The first backoffs of a new training. Weights that are loaded for fine-tuning, without an optimizer's state. A
        scaler that goes on with the scale it had. A single skip.
    """

    code = "AMP107"
    name = "scaler-state-not-restored"
    severity = Severity.WARNING
    needs = ("calls", "scaler")
    thresholds = {"skips": Threshold(2, "one skip is what a growth of the scale costs at any time")}
    HEALTHY = (
        Example("a new training", lambda: _new_process(entries=None)),
        Example("a scaler that is restored", lambda: _new_process(restored=True, skips=0)),
        Example("restored, and yet it steps back", lambda: _new_process(restored=True)),
        Example("folds of a cross-validation", lambda: _same_process(entries=0, loss=2.0)),
        Example("a scale that fits from the start", lambda: _new_process(skips=1)),
        Example("the scaler lives on", lambda: _same_process(scaler="scaler0", start=256.0, skips=3)),
    )
    SICK = (
        Example("a new process", _new_process),
        Example("the same process", _same_process),
        Example("an optimizer that keeps no state", lambda: _same_process(entries=0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        told: set[str] = set()
        for case in resumed(run):
            if case.scaler not in told and len(case.backoffs) >= self.threshold("skips"):
                told.add(case.scaler)
                yield self._finding(case)

    def _finding(self, case: Resumed) -> Finding:
        first, last = case.backoffs[0], case.backoffs[-1]
        start, end = first.scale or 1.0, last.scale_after or 1.0
        source = source_of(case.load)
        verb = "is" if len(case.backoffs) == 1 else "are"
        evidence = [
            Evidence(
                "skips_after_resume", len(case.backoffs),
                f"{counted(len(case.backoffs), 'step')} in a row right after the resume {verb} skipped.",
            ),
            Evidence(
                "scale_after_resume", start,
                f"The new scaler starts at {scale_text(start)} and comes down to {scale_text(end)}.",
            ),
        ]  # fmt: skip
        if case.before is not None:
            text = f"Before the resume the scale was {scale_text(case.before)}."
            evidence.append(Evidence("scale_before_resume", case.before, text))
        if case.load.entries:
            text = f"The optimizer's state was loaded, for {counted(case.load.entries, 'parameter')}; no scaler's was."
            evidence.append(Evidence("restored_parameters", case.load.entries, text))
        return self.finding(
            f"The training resumes with a new GradScaler at {scale_text(start)}: {counted(len(case.backoffs), 'step')} "
            f"{verb} skipped until the scale fits again.",
            evidence=evidence,
            fixes=[_fix(source)],
            location=Location((), first.step, last.step, source=source),
            confidence=Confidence.HIGH if case.load.entries else Confidence.MEDIUM,
        )


def _fix(source: str | None) -> Fix:
    code = f"""\
checkpoint = {{
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scaler": scaler.state_dict(),  # add this line
}}

optimizer.load_state_dict(checkpoint["optimizer"]){comment(source)}
scaler.load_state_dict(checkpoint["scaler"])  # add this line, before the first step"""
    expected = "The scale goes on where it was, and no step is skipped for it."
    return Fix("Save and restore the scaler's state", code, expected, Grade.OBSERVED)
