"""The rule dtype-mismatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.dtype_cures import cures_of
from ampdoctor.analysis.calls.dtype_clashes import Clash, clashes, in_custom_function
from ampdoctor.analysis.calls.exceptions import aftermath, by_place, place_of
from ampdoctor.finding import Evidence, Finding, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_LINEAR = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half"


def _crash(error: str = _LINEAR, weights: str = "float16", call: str = "exception", **columns: object) -> RunBuilder:
    """A forward pass that ends in the module `head`."""
    run = RunBuilder().module("head", dtypes=[weights], step=0)
    given = {"error_module": "head", "error_file": "train.py", "error_line": 21} | columns
    return run.call(call, step=0, error=error, **given)


class DtypeMismatch(Rule):
    """An operation meets tensors of two dtypes, half and another, where nothing casts them.

    What it means
        Matrix products, convolutions and many others want all their tensors in one dtype. Under autocast the operations
        on its lists cast for themselves. Without it a model cast by `.half()` or `.bfloat16()` gets FP32 input, or one
        buffer, mask or state was left in FP32. Under autocast the rest do not cast: in-place writes by index, `out=`,
        custom kernels, a loss in FP32 on half output.

    Why it matters
        The training ends there: "mat1 and mat2 must have the same dtype", "expected scalar type Half but found Float".

    How to fix
        Keep the weights in FP32 and run the forward pass under autocast. Where a model is meant to be half, cast its
        inputs too. Where a single operation is concerned, cast one of its tensors there.

    Not to be mistaken for
        A custom autograd.Function under autocast (custom-function-dtype). Float64 data beside FP32 weights, or a target
        of integers: nothing of that is mixed precision. Tensors on two devices.
    """

    code = "AMP505"
    name = "dtype-mismatch"
    severity = Severity.ERROR
    needs = ("calls",)
    after = ("checkpoint-autocast-lost",)
    HEALTHY = (
        Example(
            "float64 data",
            lambda: _crash("RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float", "float32"),
        ),
        Example("an integer target", lambda: _crash("RuntimeError: expected scalar type Long but found Float")),
        Example(
            "two devices",
            lambda: _crash(
                "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.HalfTensor) should be the same"
            ),
        ),
        Example("another exception", lambda: _crash("RuntimeError: shape '[3]' is invalid for input of size 4")),
    )  # fmt: skip
    SICK = (
        Example("half weights, FP32 input", _crash),
        Example(
            "FP32 weights, half input",
            lambda: _crash("RuntimeError: Input type (c10::Half) and bias type (float) should be the same", "float32"),
        ),
        Example(
            "an indexed write under autocast",
            lambda: _crash(
                "RuntimeError: Index put requires the source and destination dtypes match, got Float for the "
                "destination and Half for the source.", "float32", error_module=None, autocast="float16",
            ),
        ),
        Example(
            "a loss, in backward",
            lambda: _crash("RuntimeError: Found dtype Float but expected Half", call="backward", error_module=None),
        ),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        mine = {id(c.failure): c for c in clashes(run) if not in_custom_function(c)}
        for found in by_place([c.failure for c in mine.values()]):
            clash = mine[id(found[0])]
            severity, evidence = aftermath(run, found)
            yield self.finding(
                f"{_what(clash)}: “{_quote(clash)}”.",
                evidence=[*evidence, *_weights(clash), _autocast(clash)],
                fixes=cures_of(run, clash),
                location=place_of(found),
                severity=severity,
            )


def _what(clash: Clash) -> str:
    other = next((d for d in clash.dtypes if d != clash.weights), None)
    autocast = "" if clash.autocast else ", with autocast off"
    if clash.weights and other and not clash.autocast:
        return f"{title_of_dtype(clash.weights)} weights get {title_of_dtype(other)} input{_where(clash)}{autocast}"
    met = f"{clash.titles} tensors meet" if len(clash.dtypes) > 1 else "Half and other tensors meet"
    if clash.failure.row.call == "backward":
        return f"{met} in the backward pass"
    return f"{met}{_where(clash)}{autocast or ' in an operation that autocast does not cast for'}"


def _where(clash: Clash) -> str:
    if clash.failure.row.error_module is None:
        return ""
    return f" in `{clash.failure.row.error_module}`" if clash.failure.row.error_module else " in the model"


def _quote(clash: Clash) -> str:
    return clash.failure.message.partition("\n")[0].rstrip(" .")[:120]


def _weights(clash: Clash) -> list[Evidence]:
    if clash.module is None or clash.weights is None or clash.weights not in HALF_DTYPES:
        return []
    count, name = clash.module.parameters, clash.module.module or clash.module.type
    text = f"{count} parameters of `{name}` are held in {title_of_dtype(clash.weights)}."
    return [Evidence("half_parameters", clash.module.parameters, text)]


def _autocast(clash: Clash) -> Evidence:
    if clash.autocast:
        text = f"`torch.autocast` to {title_of_dtype(clash.autocast)} was on there."
        return Evidence("autocast", clash.autocast, text)
    return Evidence("autocast", "off", "`torch.autocast` was off there.")
