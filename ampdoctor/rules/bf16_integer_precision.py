"""The rule bf16-integer-precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.forward.roundings import at_line, collided, place, roundings, source
from ampdoctor.analysis.wording import percent
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import RoundingRow

USES = {
    "sin": "sine and cosine were taken of them",
    "cos": "sine and cosine were taken of them",
    "integer": "they were cast back to integers",
    "equal": "they were compared for equality",
}
"""What whole numbers that name something go on to, and a size or a weight does not."""


def _run(**columns: Any) -> RunBuilder:
    """One step that casts 1024 whole numbers to BF16."""
    numbers = {
        "numel": 1024, "largest": 1023.0, "changed": 512, "distinct": 1024, "distinct_after": 513,
        "even_steps": True, "led_to": [], "file": "train.py", "line": 12,
    }  # fmt: skip
    return RunBuilder().step(loss=1.0).rounding("watched").rounding("integers", **(numbers | columns))


class Bf16IntegerPrecision(Rule):
    """Whole numbers that name something (positions, indices, time steps) coincide once they are cast to half.

    What it means
        BF16 holds every whole number up to 256 and FP16 up to 2048. Beyond that only every 2nd, 4th, 8th … one exists:
        positions 512 to 515 in BF16 are all 512 or 516.

    Why it matters
        The model is given the same input for different positions or time steps and cannot tell them apart, whatever it
        learns. There is no error and no NaN: long sequences and late time steps are just worse than in FP32.

    How to fix
        Keep positions, indices and time steps in int64 or FP32 up to the embedding, sine or phase that is made of them,
        and cast that.

    Not to be mistaken for
        Sizes: pixel values, counts and weights lose the same bits and are only rounded by 0.4 % or less. One-hot
        labels and class indices below 256, which BF16 holds.
    """

    code = "AMP210"
    name = "bf16-integer-precision"
    severity = Severity.ERROR
    needs = ("roundings",)
    after = ("rope-half-precision",)
    thresholds = {
        "collided": Threshold(
            0.1, "one in ten is not itself any more; with positions up to 320 in BF16, or 2560 in FP16"
        ),
        "collided_error": Threshold(0.25, "a quarter: with positions up to 512 in BF16, half of all beyond 256"),
    }
    HEALTHY = (
        Example("positions that fit", lambda: _run(distinct=260, distinct_after=258, changed=2)),
        Example("large counts as weights", lambda: _run(even_steps=False)),
        Example("a ramp of weights for the loss", lambda: _run(led_to=["weight"])),
    )
    SICK = (
        Example("1024 positions in BF16", _run),
        Example(
            "random time steps on the way to a sine",
            lambda: _run(even_steps=False, distinct=64, distinct_after=63, numel=64, changed=40, led_to=["sin"]),
        ),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        rows = [r for r in roundings(run).get("integers", ()) if self._harm(r) is not None]
        if rows:
            yield self._finding(max(rows, key=lambda r: self._harm(r) or 0.0), rows)

    def _harm(self, row: RoundingRow) -> float | None:
        """Return the share of the numbers that lost their identity; None where that is no matter."""
        uses = set(row.led_to or ())
        shares = [collided(row)] if row.even_steps and uses != {"weight"} else []
        if uses & USES.keys():
            shares.append((row.changed or 0) / row.numel)
        worst = max(shares, default=0.0)
        return worst if worst >= self.threshold("collided") else None

    def _finding(self, row: RoundingRow, rows: list[RoundingRow]) -> Finding:
        title, harm = title_of_dtype(row.dtype_out), self._harm(row) or 0.0
        severe = harm >= self.threshold("collided_error")
        distinct, left = row.distinct or 0, row.distinct_after or 0
        if row.even_steps:
            summary = f"Positions collide in {title} {place(row)}: of {distinct} different ones {left} are left."
        else:
            numbers = f"Whole numbers up to {row.largest or 0.0:.0f}"
            summary = f"{numbers} are changed by {title} {place(row)}: {percent(harm)} of them."
        others = sorted({s for r in rows if r is not row and (s := source(r))} - {source(row)})
        more = f" So it is at {', '.join(others)}." if others else ""
        return self.finding(
            summary,
            evidence=[*_evidence(row, title), *([Evidence("other_lines", len(others), more.strip())] if more else [])],
            fixes=[_fix(row)],
            location=Location(
                (f"{row.module} ({row.op})",) if row.module else (), row.step, max(r.step for r in rows),
                source=source(row),
            ),
            grade=Grade.MEASURED,
            severity=Severity.ERROR if severe else Severity.WARNING,
        )  # fmt: skip


def _evidence(row: RoundingRow, title: str) -> list[Evidence]:
    number_format = format_of_dtype(row.dtype_out)
    exact = 2 ** (number_format.mantissa_bits + 1) if number_format else 0
    counts = (
        f"`{row.op}` changed {row.changed} of {row.numel} whole numbers (up to {row.largest or 0.0:.0f}): "
        f"{row.distinct} different ones went in, {row.distinct_after} came out."
    )
    found = [
        Evidence("integers_changed", row.changed or 0, counts, Grade.MEASURED),
        Evidence("exact_up_to", exact, f"{title} holds every whole number up to {exact} only."),
    ]
    if row.even_steps:
        found.append(
            Evidence("even_steps", True, f"`{row.op}` met even steps, as positions have: neighbours become equal.")
        )  # fmt: skip
    uses = list(dict.fromkeys(USES[use] for use in row.led_to or () if use in USES))
    if uses:
        found.append(Evidence("led_to", ",".join(row.led_to or ()), f"After `{row.op}`, {' and '.join(uses)}."))
    return found


def _fix(row: RoundingRow) -> Fix:
    if row.op.endswith("arange"):
        instead = f"instead of dtype=torch.{row.dtype_out}{_where(row)}"
        code = f"positions = torch.arange(n, device=x.device)  # int64, {instead}"
    elif row.op.endswith("cumsum"):
        code = f"positions = mask.long().cumsum(-1)  # instead of a sum in {row.dtype_out}{_where(row)}"
    else:
        code = f"positions = positions.float()  # instead of torch.{row.dtype_out}{_where(row)}"
    code += f"\nfeatures = embed(positions).to(torch.{row.dtype_out})  # cast what is made of them, last"
    return Fix(
        "Keep them in int64 or FP32 and cast last",
        code,
        "Every number up to 16777216 stays itself in FP32.",
        Grade.OBSERVED,
    )


def _where(row: RoundingRow) -> str:
    return at_line(row).replace("  # ", ": ", 1)
