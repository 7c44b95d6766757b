"""The first operation that makes NaN or infinities, in words: what the rules about the forward pass say alike."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.forward_reach import harmed_steps
from ampdoctor.analysis.forward.op_flow import base
from ampdoctor.analysis.wording import counted
from ampdoctor.analysis.words.origin_report import origin_evidence, tried, twin_evidence
from ampdoctor.finding import Evidence, Fix, Grade, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.forward.birth_causes import Cause
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow

LASTING = 3, "three such steps are no accident of one batch"
"""Harmed steps from which on it is the run that is harmed, and where the number comes from."""


def op_name(row: OpRow) -> str:
    """Return the operation as users know it: `softmax` of `aten._softmax`."""
    return base(row).lstrip("_")


def format_name(row: OpRow) -> str:
    """Return what the half format of an operation is called."""
    dtypes = f"{row.dtype_in},{row.dtype_out}"
    return "BF16" if "bfloat16" in dtypes and "float16" not in dtypes.split(",") else "FP16"


def line_of_row(row: OpRow) -> str | None:
    """Return `file:line` of the user's code, the file without its folders."""
    if not row.file or row.line is None:
        return None
    return f"{row.file.replace(chr(92), '/').rpartition('/')[2]}:{row.line}"


def at(row: OpRow) -> str:
    """Return where an operation is: "in `encoder.norm` (model.py:41)", "outside the modules (train.py:12)"."""
    line = line_of_row(row)
    where = f"in `{row.module}`" if row.module else "outside the modules"
    return f"{where} ({line})" if line else where


def comment_of(row: OpRow) -> str:
    """Return the line as a trailing comment, or nothing."""
    return f"  # {line}" if (line := line_of_row(row)) else ""


def harm(found: Sequence[Cause]) -> str | None:
    """Return what comes of it, as text; None where nobody is told."""
    return next((c.harm for c in found if c.harm), None)


def cause_evidence(run: Run, found: Sequence[Cause]) -> list[Evidence]:
    """Return what was measured of the first birth, what FP32 makes of the step, and how often it was seen."""
    first = found[0]
    looked = len({t.step for t in run.twin_steps if t.declined is None})
    text = f"So it is on {len(found)} of {counted(max(looked, len(found)), 'step')} whose operations were looked at."
    twins = next((e for c in found if (e := twin_evidence(run, c.step))), [])
    return [_birth(run, first), *twins, Evidence("steps_affected", len(found), text, Grade.MEASURED)]


def _birth(run: Run, cause: Cause) -> Evidence:
    (evidence,) = origin_evidence(run, cause.birth)
    if cause.birth.finite_in_fp32 is True:
        return evidence
    # What FP32 makes of inputs that are spoilt already speaks neither for nor against precision.
    text = evidence.text.partition(" In FP32")[0] + " What went in was spoilt before."
    return replace(evidence, text=text)


def cause_location(found: Sequence[Cause], role: str = "activation") -> Location:
    """Return where and when it was seen."""
    row = found[0].birth.row
    site = f"{row.module or row.op} ({role})"
    return Location((site,), found[0].step, found[-1].step, source=found[0].birth.source)


def cause_severity(run: Run, found: Sequence[Cause], lasting: float) -> Severity:
    """One batch that a scaler skips is not yet a fault of the run."""
    first = next((s for s in run.steps if s.step == found[0].step), None)
    if first is None or first is run.steps[-1] or not first.found_inf:
        return Severity.ERROR if found[0].harm else Severity.WARNING
    lost = [s for s in run.steps if s.loss is not None and not math.isfinite(s.loss)]
    harmed = {s.step for s in lost} if first in lost else set(harmed_steps(run))
    later = sum(step >= first.step for step in harmed)
    return Severity.ERROR if max(later, len(found)) >= lasting else Severity.WARNING


def tried_on(run: Run, found: Sequence[Cause], setting: str, fix: Fix) -> Fix:
    """Return `fix` as measured, where the twin of one of the steps is finite in `setting`; else as it is."""
    fixes = (tried(run, c.step, setting, fix) for c in found)
    return next((f for f in fixes if f is not fix), fix)
