"""The rule anomaly-false-alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.backward.scale_range import Peak
from ampdoctor.analysis.calls.anomaly import FalseAlarm, false_alarms
from ampdoctor.analysis.calls.exceptions import aftermath, place_of
from ampdoctor.analysis.wording import number, place, scale_code, scale_text
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_RAISED = "RuntimeError: Function 'AddmmBackward0' returned nan values in its 0th output."


def _raised(
    *, loss: float = 2.0, scaled: str = "all", activation_nan: int = 0, error: str = _RAISED, mode: bool = True
) -> RunBuilder:
    """A first backward pass that ends in anomaly mode."""
    run = RunBuilder().tensor(
        "body", "activation", dtype="float16", exponents={0: 9}, nan=activation_nan, step=0, micro_batch=0
    )
    return run.call(
        "backward", step=0, micro_batch=0, scaled=scaled, error=error, loss=loss, error_file="train.py",
        error_line=40, anomaly_mode=mode,
    )  # fmt: skip


def _then(run: RunBuilder, module: str, dtype: str = "float16", **columns: Any) -> RunBuilder:
    """Add a gradient of that pass."""
    given = {"step": 0, "micro_batch": 0, "loss_scale": 65536.0} | columns
    return run.tensor(module, "grad_output", dtype=dtype, **given)


def _overflow(**given: Any) -> RunBuilder:
    wide = {"exponents": {26: 10}, "absmax": 7e7, "slot": "cast", "cast_to": "float16"}
    return _then(_then(_raised(**given), "head", "float32", **wide), "head", posinf=10)


def _zero_by_zero() -> RunBuilder:
    """An infinity out of small gradients."""
    return _then(_then(_raised(), "head", exponents={9: 10}), "norm", posinf=1, exponents={9: 9})


def _between_layers() -> RunBuilder:
    return _then(_then(_raised(), "head", exponents={14: 10}), "body", posinf=9, nan=1)


class AnomalyFalseAlarm(Rule):
    """Autograd's anomaly mode has raised at an overflow that the GradScaler would have dealt with.

    What it means
        A dynamic scaler starts at 65536, tries, skips the steps on which a scaled gradient is infinite, and halves its
        scale until none is. `detect_anomaly` looks at every gradient before the scaler does, and raises "returned nan
        values" at the first one that such an infinity has turned into NaN. Forward pass and loss were finite.

    Why it matters
        The training ends at a step that would have been skipped, and the message points to an innocent layer.

    How to fix
        Turn anomaly mode off under a scaler, or its check for NaN alone (`check_nan=False`). To look for a true NaN,
        let the scaler calibrate first, start it at a scale that fits, or look in FP32 without a scaler.

    Not to be mistaken for
        A NaN that is born in the forward pass or the loss. A backward pass that divides by zero (a square root or norm
        at 0): it is NaN at any scale, and anomaly mode is right.
    """

    code = "AMP214"
    name = "anomaly-false-alarm"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example("no exception", lambda: RunBuilder().step(loss=1.0).call("backward", scaled="all")),
        Example("the loss is NaN", lambda: _overflow(loss=float("nan"))),
        Example("NaN in the forward pass", lambda: _overflow(activation_nan=1)),
        Example("the same words without anomaly mode", lambda: _overflow(mode=False)),
        Example("no scaler", lambda: _overflow(scaled="none")),
        Example("a division by zero", _zero_by_zero),
        Example("another exception", lambda: _overflow(error="RuntimeError: out of range")),
    )
    SICK = (Example("beyond FP16 where it is cast", _overflow), Example("between two layers", _between_layers))

    def check(self, run: Run) -> Iterator[Finding]:
        alarms = false_alarms(run)
        if not alarms:
            return
        first, found = alarms[0], [a.failure for a in alarms]
        severity, evidence = aftermath(run, found)
        sure = first.at_cast and not first.estimated
        yield self.finding(
            f"Anomaly mode raised at a gradient that overflowed by the loss scale of {scale_text(first.scale)}: "
            f"“Function '{first.node}' returned nan values”, although the loss is finite and the scaler would have "
            "skipped the step.",
            evidence=[*evidence, *_evidence(first)],
            fixes=_fixes(run, first),
            location=place_of(found),
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
            grade=Grade.ESTIMATED if first.estimated else Grade.OBSERVED,
            severity=severity,
        )


def _evidence(alarm: FalseAlarm) -> list[Evidence]:
    site = f" at {place(alarm.site)}" if alarm.site else ""
    if alarm.estimated:
        text = f"By the examined steps and this loss, the largest scaled gradient{site} was about {number(alarm.peak)}"
    else:
        text = f"The largest scaled gradient before the NaN{site} was {number(alarm.peak)}"
    cast = ", about to be cast to FP16" if alarm.at_cast else ""
    grade = Grade.ESTIMATED if alarm.estimated else Grade.OBSERVED
    evidence = [
        Evidence("largest_scaled_gradient", alarm.peak, f"{text}{cast}; FP16 ends at {FP16.max:.0f}.", grade),
        Evidence("loss_scale", alarm.scale, f"The loss was multiplied by {scale_text(alarm.scale)}."),
    ]
    loss = alarm.failure.row.loss
    if loss is not None:
        evidence.append(Evidence("loss", loss, f"The loss itself was finite: {number(loss)}."))
    return evidence


def _fixes(run: Run, alarm: FalseAlarm) -> list[Fix]:
    at = comment(alarm.failure.source)
    off = f"""\
torch.autograd.set_detect_anomaly(False)  # or remove `with torch.autograd.detect_anomaly():`
scaler.scale(loss).backward(){at}"""
    unchecked = "torch.autograd.set_detect_anomaly(True, check_nan=False)  # keeps the forward tracebacks of errors"
    scale = min(Peak(alarm.peak / alarm.scale, alarm.site).largest_scale, alarm.scale / 2)
    lower = f'scaler = torch.amp.GradScaler("{device_type(run)}", init_scale={scale_code(scale)})'
    return [
        Fix("Turn anomaly mode off", off, "The scaler skips such steps and finds a scale that fits.", Grade.OBSERVED),
        Fix("Keep anomaly mode without its check for NaN", unchecked, "Infinite gradients are left to the scaler."),
        Fix("Start the scaler lower while you debug", lower,
            "Fewer calibration skips are left for anomaly mode to stumble over."),
    ]  # fmt: skip
