"""The rule custom-function-dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type
from ampdoctor.analysis.calls.dtype_clashes import Clash, clashes, in_custom_function
from ampdoctor.analysis.calls.exceptions import aftermath, by_place, place_of
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.formats import title_of_dtype
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_CLASH = "RuntimeError: expected m1 and m2 to have the same dtype, but got: c10::Half != float"


def _crash(call: str = "backward", error: str = _CLASH, **columns: object) -> RunBuilder:
    """A first step that ends with an exception out of a custom function."""
    given = {"custom_function": "Swish.backward", "last_autocast": "float16", "error_line": 9} | columns
    return RunBuilder().call(call, step=0, error=error, error_file="layers.py", **given)


class CustomFunctionDtype(Rule):
    """A custom autograd.Function meets two dtypes, because autocast is not told how to treat it.

    What it means
        Autocast is on while the forward pass runs and off while the backward pass does. A `torch.autograd.Function`
        saves tensors in the dtype they had, FP32 weights and half activations side by side, and its `backward`
        multiplies them without autocast to make them fit. In `forward`, a kernel of one's own gets inputs of either
        dtype. `custom_fwd` and `custom_bwd` say in which precision a Function works.

    Why it matters
        The first backward pass ends the training.

    How to fix
        Decorate `forward` with `torch.amp.custom_fwd(device_type=..., cast_inputs=...)` and `backward` with
        `torch.amp.custom_bwd(device_type=...)`.

    Not to be mistaken for
        A half model that gets FP32 input without autocast (dtype-mismatch). A Function of torch's own, such as that of
        checkpointing, in whose recomputation something else fails.
    """

    code = "AMP504"
    name = "custom-function-dtype"
    severity = Severity.ERROR
    needs = ("calls",)
    after = ("checkpoint-autocast-lost",)
    HEALTHY = (
        Example("no custom function", lambda: _crash("exception", custom_function=None)),
        Example("no autocast", lambda: _crash(last_autocast=None)),
        Example("another exception in it", lambda: _crash(error="RuntimeError: shapes (3) and (4) don't match")),
        Example("integers", lambda: _crash(error="RuntimeError: expected scalar type Long but found Float")),
    )  # fmt: skip
    SICK = (
        Example("FP16 times FP32 in backward", _crash),
        Example(
            "a kernel in forward",
            lambda: _crash(
                "exception",
                error="RuntimeError: expected scalar type Float but found Half",
                custom_function="DeformConv.forward",
                autocast="float16",
            ),
        ),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        mine = {id(c.failure): c for c in clashes(run) if in_custom_function(c)}
        for found in by_place([c.failure for c in mine.values()]):
            clash = mine[id(found[0])]
            severity, evidence = aftermath(run, found)
            yield self.finding(
                _summary(clash),
                evidence=[*evidence, _autocast(clash)],
                fixes=_fixes(run, clash),
                location=place_of(found),
                severity=severity,
            )


def _name(clash: Clash) -> tuple[str, str]:
    """Return the class and the method."""
    name, _, method = (clash.failure.row.custom_function or "").rpartition(".")
    return name, method


def _summary(clash: Clash) -> str:
    name, method = _name(clash)
    met = f"{clash.titles} tensors" if len(clash.dtypes) > 1 else "tensors of two dtypes"
    why = "without autocast" if method == "backward" else "under autocast"
    return f"The custom function `{name}` meets {met} in its {method}, {why}: “{_quote(clash)}”."


def _quote(clash: Clash) -> str:
    return clash.failure.message.partition("\n")[0].rstrip(" .")[:120]


def _autocast(clash: Clash) -> Evidence:
    name, method = _name(clash)
    dtype = clash.under_autocast or ""
    state = "and off in its backward" if method == "backward" else "and does not cast what a custom kernel gets"
    text = f"Autocast to {title_of_dtype(dtype)} was on in the forward of `{name}`, {state}."
    return Evidence("autocast", dtype, text)


def _fixes(run: Run, clash: Clash) -> list[Fix]:
    name, method = _name(clash)
    device, at = device_type(run), clash.failure.source
    where = f"  # {at}" if at else ""
    decorated = f"""\
class {name}(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="{device}", cast_inputs=torch.float32)
    def forward(ctx, ...):{where if method == "forward" else ""}
        ...

    @staticmethod
    @torch.amp.custom_bwd(device_type="{device}")
    def backward(ctx, ...):{where if method == "backward" else ""}
        ..."""
    followed = f"""\
@torch.amp.custom_fwd(device_type="{device}")  # without cast_inputs: in the precision of autocast
def forward(ctx, ...): ...
@torch.amp.custom_bwd(device_type="{device}")  # with the autocast state of forward
def backward(ctx, ...): ..."""
    return [
        Fix("Decorate forward and backward, in FP32", decorated,
            "Its inputs are cast to FP32, so both passes see one dtype.", Grade.OBSERVED),
        Fix("Or let both run under autocast", followed,
            "backward then casts as forward did; right where it is made of torch's own operations."),
    ]  # fmt: skip
