"""The rule loss-in-half."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type
from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.forward.loss_in_fp32 import LOSS_ALONE, TwinnedLoss, last_in_half, twinned_losses
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run


def _run(own: float, same_outputs: float, fp32: float, first: float = 2.0) -> RunBuilder:
    """Three steps, the last with twins of its loss, which a sum in FP16 ends in."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(3):
        run.step(loss=first)
    run.twin_step("fp32")
    for name, value in (("run", own), ("fp32", fp32), (LOSS_ALONE, same_outputs)):
        run.twin(name, "", "loss", value=value)
    return run.op("aten.sum", file="train.py", line=36)


class LossInHalf(Rule):
    """The loss is computed in half precision, and is not what FP32 makes of the same outputs.

    What it means
        Under autocast a model's outputs are FP16 or BF16. A criterion that is written by hand, or runs in a block of
        autocast(enabled=False), computes in the dtype of what it is given: disabling autocast casts nothing. Sums of
        many terms, logarithms and differences of near numbers lose most of their digits there.

    Why it matters
        The loss is several times its true value, or has the wrong sign, and so have the numbers that early stopping,
        learning rate schedules and comparisons between runs rest on. Gradients may be wrong as well.

    How to fix
        Cast the outputs before the loss: `criterion(outputs.float(), target)`.

    Not to be mistaken for
        A loss in half that comes out right but for its last digits. Outputs whose own rounding moves the loss: with
        those same outputs FP32 comes to the same, and the model is what is half. A loss that is NaN or infinite, which
        has overflowed. A loss that has fallen to next to nothing.
    """

    code = "AMP206"
    name = "loss-in-half"
    severity = Severity.WARNING
    needs = ("twins",)
    after = (
        "loss-overflow", "log-of-zero-underflow", "activation-overflow", "attention-overflow",
        "train-infer-dtype-mismatch",
    )  # fmt: skip
    thresholds = {
        "error_warning": Threshold(
            0.1, "a digit of the loss is left; rounding a right loss to BF16 moves it by 0.4 % at most"
        ),
        "error_error": Threshold(0.5, "it is half or twice what it should be, or has another sign"),
        "converged": Threshold(*LIMITS["converged"]),
    }
    HEALTHY = (
        Example("right but for its last digits", lambda: _run(2.3, 2.302, 2.301)),
        Example("it is the outputs that are rounded", lambda: _run(0.020, 0.020, 0.011)),
        Example("next to nothing is left of the loss", lambda: _run(0.0, 1e-4, 1e-4)),
    )
    SICK = (
        Example("a KL divergence in FP16", lambda: _run(-2.03e-3, 2.59e-4, 2.58e-4, first=2e-3)),
        Example("a fifth too large", lambda: _run(1.2, 1.0, 1.0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        first = next((abs(s.loss) for s in run.steps if s.loss is not None and isfinite(s.loss)), 0.0)
        least = self.threshold("converged") * first
        losses = twinned_losses(run)
        wrong = [
            x
            for x in losses
            if x.error >= self.threshold("error_warning") and max(abs(x.run), abs(x.same_outputs)) > least
        ]
        # One batch of many may end near zero, where any rounding is a large share of it.
        if wrong and 2 * len(wrong) >= len(losses):
            yield self._finding(run, wrong, len(losses))

    def _finding(self, run: Run, wrong: Sequence[TwinnedLoss], seen: int) -> Finding:
        worst = max(wrong, key=lambda x: x.error)
        origin = last_in_half(run, worst.step)
        title = _title(origin)
        severe = worst.error >= self.threshold("error_error")
        return self.finding(
            f"The loss is computed in {title} and comes to {number(worst.run)}; of the same outputs, FP32 makes "
            f"{number(worst.same_outputs)}.",
            evidence=_evidence(worst, origin, len(wrong), seen),
            fixes=_fixes(run, origin, worst),
            location=Location(
                ("loss",), wrong[0].step, wrong[-1].step, source=origin.source if origin else None
            ),
            grade=Grade.MEASURED,
            severity=Severity.ERROR if severe else Severity.WARNING,
        )  # fmt: skip


def _title(origin: Origin | None) -> str:
    dtypes = origin.row.dtype_out.split(",") if origin else []
    return next((title_of_dtype(d) for d in dtypes if d in HALF_DTYPES), "half precision")


def _evidence(worst: TwinnedLoss, origin: Origin | None, wrong: int, seen: int) -> list[Evidence]:
    off = percent(worst.error) if worst.error < 1.0 else f"{number(worst.error)} times that"
    text = (
        f"On step {worst.step} the loss is {number(worst.run)}; the same outputs in FP32 give "
        f"{number(worst.same_outputs)}: it is off by {off}."
    )
    found = [Evidence("loss_error", worst.error, text, Grade.MEASURED)]
    if worst.fp32 is not None:
        text = f"With the whole model in FP32 it is {number(worst.fp32)}."
        found.append(Evidence("loss_in_fp32", worst.fp32, text, Grade.MEASURED))
    if origin is not None:
        text = f"It comes from {origin.phrase}, in {origin.row.dtype_out}."
        found.append(Evidence("last_half_operation", origin.row.op, text))
    text = f"So it is on {wrong} of {counted(seen, 'step')} that FP32 was carried beside."
    return [*found, Evidence("steps_affected", wrong, text)]


def _fixes(run: Run, origin: Origin | None, worst: TwinnedLoss) -> list[Fix]:
    line = f"  # {origin.source}" if origin and origin.source else ""
    code = f"""\
outputs = model(inputs)  # half under autocast
with torch.autocast("{device_type(run)}", enabled=False):
    loss = criterion(outputs.float(), target){line}"""
    return [
        Fix(
            "Cast the outputs to FP32 before the loss", code,
            f"The loss of step {worst.step} is {number(worst.same_outputs)} then.", Grade.MEASURED,
        )
    ]  # fmt: skip
