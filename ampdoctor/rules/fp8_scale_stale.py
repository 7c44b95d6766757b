"""The rule fp8-scale-stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.forward.roundings import at_line, place, roundings, source
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import RoundingRow


_DRIFT = 4
"""Looks over which amax must have moved one way each time to be called a drift: by chance it does once in 12."""


def _run(*steps: tuple[float, float, float], dtype: str = "float8_e4m3fn") -> RunBuilder:
    """One look per step at one cast: largest scaled value, energy beyond the format's largest number, and flushed."""
    run = RunBuilder()
    for largest, over, flushed in steps:
        columns: dict[str, Any] = {
            "module": "ffn.up", "dtype_in": "float32", "dtype_out": dtype, "numel": 1000, "nonzero": 1000,
            "largest": largest, "beyond": int(1000 * over), "flushed": int(1000 * flushed),
            "energy_beyond": over, "energy_flushed": flushed, "file": "train.py", "line": 18,
        }  # fmt: skip
        run.step(loss=1.0).rounding("watched").rounding("float8", **columns)
    return run


class Fp8ScaleStale(Rule):
    """Tensors have outgrown, or shrunk below, the scale with which they are cast to FP8.

    What it means
        FP8 holds so few powers of two that each tensor is multiplied by a scale of its own first, which puts its
        largest magnitude (amax) near the largest number of the format. A scale that is not made anew as amax moves
        fits no more: values beyond the format's largest number are clamped to it, or those below its smallest are zero.

    Why it matters
        Training begins well and drifts away from what FP32 does, step by step, until it stalls or diverges.

    How to fix
        Take amax anew on each step, or as the largest of the last steps (delayed scaling) with some margin.

    Not to be mistaken for
        A scale that is made anew each step, at which the largest elements sit at the edge and none is beyond it. A
        batch with an outlier now and then. The format's own rounding, which takes 0.1 % (E4M3) to 0.5 % (E5M2) of the
        energy.
    """

    code = "AMP216"
    name = "fp8-scale-stale"
    severity = Severity.ERROR
    needs = ("roundings",)
    thresholds = {
        "energy_warning": Threshold(*LIMITS["lost_energy"]),
        "energy_error": Threshold(*LIMITS["wrong_error"]),
        "lasting_share": Threshold(*LIMITS["lasting_share"]),
    }
    HEALTHY = (
        Example("fresh amax on each step", lambda: _run(*[(448.0, 0.0, 0.0)] * 4)),
        Example("an outlier on one step", lambda: _run(*[(448.0, 0.0, 0.0)] * 3, (2000.0, 0.3, 0.0), (440.0, 0, 0))),
        Example("delayed scaling that lags a little", lambda: _run(*[(490.0, 0.002, 0.0)] * 4)),
    )  # fmt: skip
    SICK = (
        Example("activations outgrow a frozen scale", lambda: _run((448, 0, 0), (700, 0.1, 0), (3000, 0.5, 0))),
        Example(
            "gradients shrink below it",
            lambda: _run((57344, 0, 0), (1e-4, 0, 0.4), (1e-6, 0, 1), dtype="float8_e5m2"),
        ),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        looks: dict[tuple[str, str | None, str], list[RoundingRow]] = {}
        for row in roundings(run).get("float8", ()):
            looks.setdefault((row.module, source(row), row.dtype_out), []).append(row)
        hurt = [rows for rows in looks.values() if self._lasts(rows)]
        if hurt:
            yield self._finding(max(hurt, key=lambda rows: _energy(rows[-1])), hurt, len(looks))

    def _lasts(self, rows: Sequence[RoundingRow]) -> bool:
        """Whether it is so on most of the later looks, on the last two, or on the last after a steady drift to it."""
        bad = [_energy(r) >= self.threshold("energy_warning") for r in rows]
        later, last = bad[len(bad) // 2 :], [r.largest or 0.0 for r in rows[-_DRIFT:]]
        steady = last in (sorted(set(last)), sorted(set(last), reverse=True))
        if all(bad[-2:]) or (bad[-1] and len(last) == _DRIFT and steady):
            return True
        return sum(later) >= self.threshold("lasting_share") * len(later)

    def _finding(self, rows: Sequence[RoundingRow], hurt: Sequence[Sequence[RoundingRow]], casts: int) -> Finding:
        worst = max(rows, key=_energy)
        first = next(r for r in rows if _energy(r) >= self.threshold("energy_warning"))
        grown = (worst.energy_beyond or 0.0) >= (worst.energy_flushed or 0.0)
        most = _largest_number(worst)
        title = title_of_dtype(worst.dtype_out)
        fate = (
            f"{percent((worst.beyond or 0) / worst.numel)} of the elements are beyond {most:.0f}"
            if grown
            else f"{percent((worst.flushed or 0) / (worst.nonzero or 1))} of the elements become zero"
        )
        verb = "does not fit" if first is rows[0] else "no longer fits"
        severe = _energy(worst) >= self.threshold("energy_error")
        return self.finding(
            f"The scale of the cast to {title} {place(worst)} {verb}: {fate}.",
            evidence=_evidence(rows, worst, len(hurt), casts),
            fixes=_fixes(worst, most),
            location=Location(
                tuple(f"{r[0].module} ({r[0].op})" for r in hurt if r[0].module), first.step, rows[-1].step,
                source=source(worst),
            ),
            grade=Grade.MEASURED,
            severity=Severity.ERROR if severe else Severity.WARNING,
        )  # fmt: skip


def _energy(row: RoundingRow) -> float:
    return (row.energy_beyond or 0.0) + (row.energy_flushed or 0.0)


def _largest_number(row: RoundingRow) -> float:
    number_format = format_of_dtype(row.dtype_out)
    return number_format.max if number_format else 240.0 if "e4m3" in row.dtype_out else 57344.0


def _evidence(rows: Sequence[RoundingRow], worst: RoundingRow, hurt: int, casts: int) -> list[Evidence]:
    first, most = rows[0], _largest_number(worst)
    counts = (
        f"On step {worst.step}, {worst.beyond or 0} of {worst.numel} elements were beyond {most:.0f}, and "
        f"{worst.flushed or 0} became zero."
    )
    energy = f"Clamping and flushing took {percent(min(1.0, _energy(worst)))} of the tensor's sum of squares"
    return [
        Evidence("elements_beyond", worst.beyond or 0, counts, Grade.MEASURED),
        Evidence(
            "energy_lost", _energy(worst),
            f"{energy}; on step {first.step} it was {percent(min(1.0, _energy(first)))}.", Grade.MEASURED,
        ),
        Evidence(
            "largest_scaled", worst.largest or 0.0,
            f"The largest magnitude, times the scale, was {number(first.largest or 0.0)} on step {first.step} and "
            f"{number(worst.largest or 0.0)} on step {worst.step}.",
        ),
        Evidence("casts_affected", hurt, f"So it is with {hurt} of {counted(casts, 'cast')} to FP8."),
    ]  # fmt: skip


def _fixes(row: RoundingRow, most: float) -> list[Fix]:
    fresh = f"""\
scale = {most:.1f} / x.detach().abs().amax().clamp(min=1e-12){at_line(row)}
x8 = (x * scale).clamp(-{most:.1f}, {most:.1f}).to(torch.{row.dtype_out})"""
    delayed = f"""\
history = torch.cat([history[1:], x.detach().abs().amax()[None]])  # of 16 steps, kept per tensor
scale = {most / 2:.1f} / history.max().clamp(min=1e-12)  # a margin of one power of two{at_line(row)}"""
    return [
        Fix("Take the scale from this step's amax", fresh, "Nothing is beyond the format's largest number."),
        Fix("Or from the largest amax of the last steps", delayed, "Follows amax, without waiting for this step's."),
    ]  # fmt: skip
