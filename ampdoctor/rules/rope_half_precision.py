"""The rule rope-half-precision."""

from __future__ import annotations

from math import floor, log2
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.forward.roundings import at_line, place, roundings, source
from ampdoctor.analysis.wording import number
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import RoundingRow


def _run(largest: float, dtype: str = "bfloat16", **columns: Any) -> RunBuilder:
    """One step that takes cosines of phases up to `largest` in `dtype`."""
    phases = {
        "op": "aten.cos", "dtype_in": dtype, "dtype_out": dtype, "module": "rope", "numel": 8192, "largest": largest,
        "rms": largest / 4, "led_to": ["product"], "file": "model.py", "line": 31,
    }  # fmt: skip
    return RunBuilder().step(loss=1.0).rounding("watched").rounding("phases", **(phases | columns))


class RopeHalfPrecision(Rule):
    """Phases of a rotary or sinusoidal embedding are held in half, which rounds them by a notable part of a turn.

    What it means
        A phase is a position times a frequency. In BF16 a number near 1000 is known to ±2, in FP16 to ±0.25, and a
        phase that is off by that much points in another direction: its sine and cosine are noise. Frequencies in half
        (`model.bfloat16()` casts buffers such as inv_freq too) do the same, by the factor of the position.

    Why it matters
        Far positions are rotated by wrong angles, so that attention over long contexts suffers, without any error, and
        only in half.

    How to fix
        Compute positions, frequencies and phases in FP32, and cast sine and cosine.

    Not to be mistaken for
        Phases in FP32 of which only sine and cosine are cast. Small phases, which half holds to a fraction of a degree.
        Frequencies that are not multiplied by positions: rounded once, they are frequencies like any others.
    """

    code = "AMP211"
    name = "rope-half-precision"
    severity = Severity.ERROR
    needs = ("roundings",)
    thresholds = {
        "phase_error": Threshold(0.5, "radians, nearly 30 degrees: a rotation off by it has lost 12 % of its cosine"),
        "typical_error": Threshold(
            0.1, "radians at the root mean square: 10 % of a unit vector, which half holds to 0.4 % or better"
        ),
    }
    HEALTHY = (
        Example("small phases", lambda: _run(60.0)),
        Example("FP16 up to position 512", lambda: _run(511.0, "float16")),
        Example(
            "positions that had collided before",
            lambda: _run(1023.0, dtype_in="float32", led_to=[]).rounding(
                "integers", numel=1024, changed=512, distinct=1024, distinct_after=513, led_to=["cos"]
            ),
        ),
    )  # fmt: skip
    SICK = (
        Example("BF16 up to position 2048", lambda: _run(2047.0)),
        Example("frequencies in BF16", lambda: _run(4095.0, dtype_in="float32")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        integers = any({"sin", "cos"} & set(r.led_to or ()) for r in roundings(run).get("integers", ()))
        rows = [
            r
            for r in roundings(run).get("phases", ())
            # Features made of positions that had coincided before are told of by those.
            if _error(r) >= self.threshold("phase_error") and ("product" in (r.led_to or ()) or not integers)
        ]  # fmt: skip
        if rows:
            yield self._finding(max(rows, key=_error), rows)

    def _finding(self, row: RoundingRow, rows: list[RoundingRow]) -> Finding:
        title, error, largest = title_of_dtype(row.dtype_out), _error(row), row.largest or 0.0
        rotary = any("product" in (r.led_to or ()) for r in rows)
        what = "Rotary phases" if rotary else "Phases"
        held = f"are held in {title}" if row.dtype_in == row.dtype_out else f"were rounded to {title}"
        typical = max(_half_a_place(r.rms or 0.0, r.dtype_out) for r in rows)
        severe = typical >= self.threshold("typical_error")
        function = row.op.rpartition(".")[2].rstrip("_")
        return self.finding(
            f"{what} {held} {place(row)}: up to {largest:.0f} rad, they are off by up to {number(error)} rad.",
            evidence=[
                Evidence(
                    "largest_phase", largest,
                    f"`{function}` was given up to {largest:.0f} rad (root mean square {number(row.rms or 0.0)}).",
                ),
                Evidence(
                    "phase_error", error,
                    f"{title} rounds the largest by up to {number(error)} rad (half a last place), and phases at the "
                    f"root mean square by up to {number(typical)} rad.", Grade.ESTIMATED,
                ),
            ],
            fixes=[_fix(row)],
            location=Location(
                (f"{row.module} ({row.op})",) if row.module else (), row.step, max(r.step for r in rows),
                source=source(row),
            ),
            grade=Grade.ESTIMATED,
            severity=Severity.ERROR if severe else Severity.WARNING,
        )  # fmt: skip


def _error(row: RoundingRow) -> float:
    """Return how far the largest phase may be off."""
    return _half_a_place(row.largest or 0.0, row.dtype_out)


def _half_a_place(phase: float, dtype: str) -> float:
    number_format = format_of_dtype(dtype)
    if number_format is None or not phase:
        return 0.0
    return 2.0 ** floor(log2(phase)) * number_format.eps / 2.0


def _fix(row: RoundingRow) -> Fix:
    cast = "half" if row.dtype_out == "float16" else "bfloat16"
    code = f"""\
# inv_freq: made anew in FP32 after model.{cast}(), which casts buffers as well
inv_freq = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
phases = torch.outer(torch.arange(n, dtype=torch.float32), inv_freq){at_line(row)}
cos, sin = phases.cos().to(x.dtype), phases.sin().to(x.dtype)  # cast last"""
    return Fix(
        "Compute phases in FP32, and cast sine and cosine",
        code,
        f"FP32 knows a phase of {row.largest or 0.0:.0f} to {number((row.largest or 0.0) * 2.0**-24)} rad.",
    )
