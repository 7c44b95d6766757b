"""The rule buffer-poisoned-by-overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import device_type, fp32_island
from ampdoctor.analysis.forward.poisoned import Poisoned, poisoned_buffers
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(*, after: float = 2.2, born: str = "float16", **buffer: Any) -> RunBuilder:
    """Four steps, the second of which is skipped; after it the running variance is what `buffer` says."""
    run = RunBuilder(device="cpu")
    for n, loss in enumerate((2.3, math.nan, after, after)):
        skipped = not math.isfinite(loss)
        run.step(loss=loss, loss_scale=1024.0, found_inf=skipped, applied=not skipped)
        run.tensor("conv", "activation", dtype=born, exponents={14: 90}, inputs_finite=True, posinf=3 * (n == 1))
        run.tensor("norm", "buffer", slot="running_var", exponents={3: 6}, **(buffer if n else {}))
        run.tensor("conv", "weight", slot="weight", exponents={-3: 90})
    return run


class BufferPoisonedByOverflow(Rule):
    """An overflow has reached running statistics: training goes on, and evaluation is NaN for ever.

    What it means
        On one step an activation was infinite. The scaler skipped the step, so that no parameter was changed; but the
        running mean and variance of a BatchNorm (or another buffer that the forward pass updates) had taken the
        infinity in already. An average that has once been NaN never recovers.

    Why it matters
        In training mode the statistics of the batch are used, and all looks well. In evaluation mode every output is
        NaN, and so is every checkpoint.

    How to fix
        Keep the overflow from the norm: run what comes before it in FP32, or in BF16. Reset the statistics
        (`reset_running_stats()`) and let them be estimated again, by some batches in training mode.

    Not to be mistaken for
        The -inf of a mask that is kept in a buffer. NaN in parameters, where the training itself has failed. NaN in
        the data (nan-not-precision).
    """

    code = "AMP212"
    name = "buffer-poisoned-by-overflow"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    HEALTHY = (
        Example("a skipped step that left no trace", _run),
        Example("the -inf of a mask in a buffer", lambda: _run(neginf=4)),
        Example("the training itself is lost", lambda: _run(after=math.nan, nan=6)),
        Example("infinite data in FP32", lambda: _run(born="float32", nan=6)),
    )
    SICK = (
        Example("a running variance that is NaN", lambda: _run(nan=6)),
        Example("one channel of it infinite", lambda: _run(posinf=1)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = poisoned_buffers(run)
        if found is None:
            return
        row = found.row
        how = "an overflow" if found.seen else "most likely an overflow"
        others = f" (and {counted(found.buffers - 1, 'other buffer')})" if found.buffers > 1 else ""
        yield self.finding(
            f"The buffer `{row.site}`{others} is poisoned: {how} in FP16 reached it by step {found.step}, the "
            "parameters are finite and the training goes on, but in evaluation mode every output will be NaN.",
            evidence=_evidence(found),
            fixes=_fixes(run, found),
            location=Location((f"{row.site} (buffer)",), found.step, found.last),
            confidence=_confidence(found),
            grade=Grade.OBSERVED,
        )


def _confidence(found: Poisoned) -> Confidence:
    if found.born is not None:
        return Confidence.HIGH
    return Confidence.MEDIUM if found.seen else Confidence.LOW


def _evidence(found: Poisoned) -> list[Evidence]:
    row, born = found.row, found.born
    evidence = [
        Evidence(
            "nonfinite_elements", row.nonfinite,
            f"{row.nonfinite} of {row.numel} elements of `{row.site}` are NaN or infinite, on step {row.step} and to "
            "the last one examined.",
        ),
        Evidence("buffers", found.buffers, f"So are {counted(found.buffers, 'buffer')} in all."),
        Evidence(
            "steps_after", found.trained,
            f"After it the loss is finite on {counted(found.trained, 'step')}, and all recorded weights are finite.",
        ),
    ]  # fmt: skip
    if born is not None:
        text = f"On step {born.step}, {born.nonfinite} of {born.numel} elements of `{born.site}` (FP16) are not finite."
        evidence.insert(1, Evidence("overflowed_elements", born.nonfinite, text))
    elif found.skipped is not None:
        text = f"Step {found.skipped}, which was not examined, was skipped by the scaler."
        evidence.insert(1, Evidence("skipped_step", found.skipped, text))
    return evidence


def _fixes(run: Run, found: Poisoned) -> list[Fix]:
    module = found.row.module
    reset = """\
for module in model.modules():
    if hasattr(module, "reset_running_stats"):
        module.reset_running_stats()
with torch.no_grad():
    model.train()
    for x, _ in islice(loader, 100):  # estimate them again
        model(x)  # with what overflows kept in FP32, see below"""
    source = found.born.module if found.born is not None and found.born.module else module
    skip = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    h = norm(h.float().clamp(-65504, 65504))  # `{module}`: an infinity never enters its statistics"""
    return [
        fp32_island(run, source, "What overflows there fits FP32, so that no infinity is handed on."),
        Fix("Reset the statistics of what is poisoned", reset, "Evaluation is finite again; the weights are sound."),
        Fix("Keep infinities from the norm", skip, "Values beyond 65504 become 65504."),
    ]  # fmt: skip
