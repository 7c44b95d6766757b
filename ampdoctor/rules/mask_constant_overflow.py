"""The rule mask-constant-overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.calls.error_messages import CONSTANT
from ampdoctor.analysis.calls.exceptions import Failure, aftermath, by_place, matching, place_of
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.formats import FP16, format_of_dtype
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.formats import NumberFormat
    from ampdoctor.trace.run import Run

_DTYPES = {"Half": "float16", "BFloat16": "bfloat16", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2"}


def _crash(dtype: str = "c10::Half", error: str = "", **columns: object) -> RunBuilder:
    """A forward pass that ends with an exception before any step."""
    text = error or f"RuntimeError: value cannot be converted to type {dtype} without overflow"
    return RunBuilder().call("exception", step=0, error=text, error_file="train.py", error_line=12, **columns)


class MaskConstantOverflow(Rule):
    """A constant such as -1e9 is written into a half-precision tensor that can't hold it.

    What it means
        FP16 ends at 65504, and BF16 a little below FP32's largest number. `masked_fill`, `full`, `clamp`, `pad` and
        their kin refuse a Python number beyond that: "value cannot be converted to type Half without overflow". In
        FP32 the same line works, and under autocast the tensor in it has become half.

    Why it matters
        The forward pass ends there.

    How to fix
        Take the constant from the tensor's own dtype, `torch.finfo(x.dtype).min`, or use `-inf` where every row keeps
        an element that is not masked. `scaled_dot_product_attention` takes a boolean mask and needs no constant.

    Not to be mistaken for
        A conversion to an integer type ("type int64_t without overflow"), which is a NaN or an index gone wrong.
        Scores that overflow by themselves. A row whose every element is masked by -inf: its softmax is NaN in any
        format.
    """

    code = "AMP203"
    name = "mask-constant-overflow"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example("no exception", lambda: RunBuilder().step(loss=1.0).call("backward")),
        Example("a NaN index", lambda: _crash("int64_t")),
        Example("beyond FP32", lambda: _crash("float")),
        Example("another exception", lambda: _crash(error="ValueError: too many masks")),
    )
    SICK = (
        Example("masked_fill(-1e9) in FP16", _crash),
        Example("FP32's minimum in BF16", lambda: _crash("c10::BFloat16")),
        Example("as older versions say it", lambda: _crash("at::Half", error="RuntimeError: value cannot be converted "
                "to type at::Half without overflow: -1e+09")),
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
