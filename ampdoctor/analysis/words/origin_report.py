"""Where inf or NaN is born, in words, as local twins and carried ones saw it."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.twins.measured import FP32, RUN, measured_steps
from ampdoctor.analysis.wording import number
from ampdoctor.finding import Evidence, Fix, Grade

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.analysis.twins.measured import Measurement
    from ampdoctor.trace.run import Run


def origin_evidence(run: Run, origin: Origin) -> list[Evidence]:
    """Return which operation is the first whose result is not finite, and what FP32 makes of the same inputs."""
    row, fp32 = origin.row, fp32_name(run)
    again = "computed again, " if row.source == "replay" else ""
    fate = {
        True: f"In {fp32} it is finite, up to {number(row.absmax)}.",
        False: f"In {fp32} it is not finite either.",
        None: f"In {fp32} {row.born_fp32} of them are not finite either.",
    }[origin.finite_in_fp32]
    return [
        Evidence(
            "born_elements", row.born,
            f"On step {row.step}, {again}the first result that is not finite although its inputs are is that of "
            f"{origin.phrase}: {row.born} of {row.numel} elements. {fate}", Grade.MEASURED,
        )
    ]  # fmt: skip


def twin_evidence(run: Run, step: int) -> list[Evidence]:
    """Return what the FP32 twin says of a step that is not finite in the run, where there is one."""
    settings, fp32 = _settings(run, step), fp32_name(run)
    own, twin = settings.get(RUN), settings.get(FP32)
    if own is not None and own.gradient.nonfinite_fp32:
        count, numel = own.gradient.nonfinite_fp32, own.gradient.numel
        text = f"In {fp32} step {step} is not finite either: {count} of {numel} elements of its gradient are not."
        return [Evidence("nonfinite_in_fp32", count, text, Grade.MEASURED)]
    if twin is not None and twin.loss is not None and isfinite(twin.loss):
        text = f"In {fp32} step {step} is finite: its loss is {number(twin.loss)}."
        return [Evidence("loss_in_fp32", twin.loss, text, Grade.MEASURED)]
    if own is not None and own.gradient.nonfinite:
        count, numel = own.gradient.overflowed, own.gradient.numel
        text = f"On step {step}, {count} of {numel} elements of the gradient are not finite; in {fp32} all of them are."
        return [Evidence("overflowed_elements", count, text, Grade.MEASURED)]
    return []


def tried(run: Run, step: int, setting: str, fix: Fix) -> Fix:
    """Return `fix` as measured, where the twin of `step` in `setting` is finite; else as it is."""
    twin = _settings(run, step).get(setting)
    if twin is None or twin.gradient.nonfinite:
        return fix
    loss = f" (loss {number(twin.loss)})" if twin.loss is not None and isfinite(twin.loss) else ""
    text = f"{fix.expected} Tried on step {step}: all gradients are finite{loss}."
    return replace(fix, expected=text, grade=Grade.MEASURED)


def _settings(run: Run, step: int) -> dict[str, Measurement]:
    return next((s.settings for s in measured_steps(run) if s.step == step), {})
