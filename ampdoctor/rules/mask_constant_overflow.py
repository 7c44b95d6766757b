"""The rule mask-constant-overflow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.calls.error_messages import CONSTANT
from ampdoctor.analysis.calls.exceptions import Failure, aftermath, by_place, matching, place_of
from ampdoctor.analysis.forward.birth_causes import Kind, causes_of
from ampdoctor.analysis.forward.operations import Origin
from ampdoctor.analysis.words.birth_report import (
    LASTING,
    at,
    cause_evidence,
    cause_location,
    cause_severity,
    comment_of,
    format_name,
    harm,
    op_name,
)
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.formats import FP16, format_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.forward.birth_causes import Cause
    from ampdoctor.formats import NumberFormat
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow

_DTYPES = {"Half": "float16", "BFloat16": "bfloat16", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2"}


def _crash(dtype: str = "c10::Half", error: str = "", **columns: object) -> RunBuilder:
    """A forward pass that ends with an exception before any step."""
    text = error or f"RuntimeError: value cannot be converted to type {dtype} without overflow"
    return RunBuilder().call("exception", step=0, error=text, error_file="train.py", error_line=12, **columns)


def _masked(op: str = "aten._to_copy", *, nan: int = 20, **mask: Any) -> RunBuilder:
    """Four steps with a mask that is made in FP32, cast and added to scores; `nan`: of so many all are masked."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    broken = {"nonfinite": 100, "nonfinite_fp32": 0, "overflowed": 100, "cosine": None, "norm_ratio": None}
    born = {"absmax": 1e9, "born": 40, "born_fp32": 0, "overflowed": 40, "first_born": 2}
    half = {"dtype_in": "float16", "dtype_out": "float16"}
    for _ in range(4):
        run.step(loss=2.3, found_inf=nan > 0, applied=nan == 0).call("backward")
        run.tensor("up", "weight", slot="weight", exponents={-3: 100})
        run.twin_step("fp32")
        run.op("aten.bmm", "attention", seq=1, inputs_from=[-1], **half)
        run.op(op, "attention", seq=2, inputs_from=[], file="m.py", line=7, **({"dtype_out": "float16"} | born | mask))
        run.op("aten.add", "attention", seq=3, inputs_from=[1, 2], **half)
        last = {"born": nan, "born_fp32": nan, "first_born": 4} if nan else {}
        run.op("aten._softmax", "attention", seq=4, inputs_from=[3], **half, **last)
        run.twin("run", "", "gradient", **(broken if nan else {}))
    return run


class MaskConstantOverflow(Rule):
    """A constant such as -1e9 is written into, or cast to, a half-precision tensor that can't hold it.

    What it means
        FP16 ends at 65504, and BF16 a little below FP32's largest number. `masked_fill`, `full`, `clamp`, `pad` and
        their kin refuse a Python number beyond that: "value cannot be converted to type Half without overflow". In
        FP32 the same line works, and under autocast the tensor in it has become half. A mask that is made in FP32 and
        then cast, `mask.to(scores.dtype)`, raises nothing: its constant becomes infinite.

    Why it matters
        The forward pass ends there. Where the constant was cast, a row of which everything is masked is -inf
        throughout, and its softmax NaN: every gradient is, and the scaler skips every step. In FP32 such a row has
        equal weights.

    How to fix
        Take the constant from the tensor's own dtype, `torch.finfo(x.dtype).min`, or use `-inf` where every row keeps
        an element that is not masked. `scaled_dot_product_attention` takes a boolean mask and needs no constant.

    Not to be mistaken for
        A conversion to an integer type ("type int64_t without overflow"), which is a NaN or an index gone wrong.
        Scores that overflow by themselves. A row whose every element is masked by -inf that was written as such: its
        softmax is NaN in any format. A cast mask that leaves each row an element, which harms nothing.
    """

    code = "AMP203"
    name = "mask-constant-overflow"
    severity = Severity.ERROR
    needs = ("calls",)
    thresholds = {"steps_error": Threshold(*LASTING)}
    HEALTHY = (
        Example("no exception", lambda: RunBuilder().step(loss=1.0).call("backward")),
        Example("a NaN index", lambda: _crash("int64_t")),
        Example("beyond FP32", lambda: _crash("float")),
        Example("another exception", lambda: _crash(error="ValueError: too many masks")),
        Example("a cast mask that leaves every row an element", lambda: _masked(nan=0)),
        Example("-inf by design", lambda: _masked(op="aten.masked_fill", born_fp32=40, absmax=9.0)),
    )
    SICK = (
        Example("masked_fill(-1e9) in FP16", _crash),
        Example("FP32's minimum in BF16", lambda: _crash("c10::BFloat16")),
        Example("as older versions say it", lambda: _crash("at::Half", error="RuntimeError: value cannot be converted "
                "to type at::Half without overflow: -1e+09")),
        Example("a mask cast to FP16, and rows that are masked throughout", _masked),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        for found in by_place(matching(run, CONSTANT)):
            severity, evidence = aftermath(run, found)
            kept, value = _told(found[0])
            if kept is None:
                continue
            text = f"{kept.title} holds numbers up to {kept.max:.6g}, FP32 up to 3.40282e+38."
            limit = Evidence("largest_number", kept.max, text)
            usual = "FP32's minimum" if kept.max > FP16.max else "-1e9"
            what = f"The constant {value:g}" if value is not None else f"A constant such as {usual}"
            yield self.finding(
                f"{what} does not fit {kept.title}: “{found[0].message.strip()[:120]}”"
                f"{_where(found[0])}.",
                evidence=[*evidence, limit],
                fixes=_fixes(run, found[0]),
                location=place_of(found),
                severity=severity,
            )  # fmt: skip
        cast = causes_of(run, Kind.MASK)
        if cast and (mask := cast[0].other) is not None:
            yield self._cast(run, mask, cast)

    def _cast(self, run: Run, mask: OpRow, found: list[Cause]) -> Finding:
        """Nothing was raised: the constant was cast, and has become infinite."""
        softmax, half = found[0].birth.row, format_name(mask)
        text = (
            f"{mask.born} of {mask.numel} results of `{op_name(mask)}` {at(mask)} are infinite in {half}; in FP32 they "
            f"are finite, up to {mask.absmax:g}."
        )
        return self.finding(
            f"A mask's constant of {mask.absmax:g} becomes infinite in {half} {at(mask)}: rows of which everything is "
            f"masked are NaN after `{op_name(softmax)}` {at(softmax)}, and {harm(found)}.",
            evidence=[Evidence("masked_elements", mask.born, text, Grade.MEASURED), *cause_evidence(run, found)],
            fixes=_cast_fixes(run, mask, softmax),
            location=replace(cause_location(found), source=Origin(mask, mask.seq).source),
            grade=Grade.MEASURED,
            severity=cause_severity(run, found, self.threshold("steps_error")),
        )


def _told(failure: Failure) -> tuple[NumberFormat | None, float | None]:
    """Return the format and, where the message tells it, the constant."""
    match = CONSTANT.search(failure.message)
    kept = format_of_dtype(_DTYPES.get(match["dtype"], "")) if match else None
    try:
        return kept, float(match["value"]) if match and match["value"] else None
    except ValueError:
        return kept, None


def _where(failure: Failure) -> str:
    return f" in `{failure.row.error_module}`" if failure.row.error_module else ""


def _cast_fixes(run: Run, mask: OpRow, softmax: OpRow) -> list[Fix]:
    own = f"""\
lowest = torch.finfo(scores.dtype).min  # scores: what the mask is added to
scores = scores.masked_fill(masked, lowest){comment_of(mask)}"""
    wide = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    weights = torch.softmax(scores.float() + mask.float(), dim=-1){comment_of(softmax)}"""
    return [
        Fix("Write the mask with the scores' own lowest number", own,
            "It always fits, and a row that is masked throughout gets equal weights, as in FP32."),
        Fix("Add the mask and take the softmax in FP32", wide, "The constant fits there; leave the cast out."),
    ]  # fmt: skip


def _fixes(run: Run, failure: Failure) -> list[Fix]:
    line = comment(failure.source)
    own = f"""\
lowest = torch.finfo(scores.dtype).min  # scores: the tensor that is filled, in whatever dtype autocast gave it
scores = scores.masked_fill(mask, lowest){line}"""
    infinite = f"""\
scores = scores.masked_fill(mask, float("-inf")){line}
# each row must keep one element that is not masked, or its softmax is NaN"""
    wide = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    scores = scores.float().masked_fill(mask, -1e9){line}"""
    return [
        Fix("Take the constant from the tensor's dtype", own,
            "It always fits, and after a softmax it is 0 as before.", Grade.OBSERVED),
        Fix("Mask with -inf", infinite, "Every floating-point format has an infinity to convert it to."),
        Fix("Mask in FP32", wide, "The constant fits there; softmax then runs in FP32 as well."),
    ]  # fmt: skip
