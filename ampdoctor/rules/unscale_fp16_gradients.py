"""The rule unscale-fp16-gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, comment, line_of, optimizer_type
from ampdoctor.analysis.calls.error_messages import FP16_GRADIENTS
from ampdoctor.analysis.calls.exceptions import aftermath, matching, place_of
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import ModuleRow


def _refused(call: str = "unscale", error: str = "") -> RunBuilder:
    """The first unscaling of a run raises."""
    run = RunBuilder()
    run.module("head", dtypes=["float16"], step=0).call("scale", step=0).call("backward", step=0)
    text = error or "ValueError: Attempting to unscale FP16 gradients."
    return run.call(call, step=0, target="optimizer0", error=text, file="train.py", line=30)


class UnscaleFp16Gradients(Rule):
    """A GradScaler meets weights held in FP16: it refuses to unscale their gradients.

    What it means
        The gradient of an FP16 weight is FP16. Divided by the loss scale it would underflow, which is what the scaling
        is there to prevent, so `unscale_` (and `step`, which calls it) raises "Attempting to unscale FP16 gradients".
        Autocast wants FP32 weights: it makes the half copies by itself. A model loaded with `torch_dtype=float16` or
        cast with `.half()` brings FP16 ones, and adapters made on top of it inherit them.

    Why it matters
        The first optimizer step ends the training.

    How to fix
        Hold every weight that is trained in FP32; frozen ones may stay in half. Or train in BF16, without a scaler.

    Not to be mistaken for
        A frozen FP16 backbone under FP32 adapters, which is fine. BF16 weights, which raise nothing and lose updates.
    """

    code = "AMP410"
    name = "unscale-fp16-gradients"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example(
            "a frozen half backbone",
            lambda: RunBuilder().step(loss=1.0).module("body", dtypes=["float16"], trainable=0).call("unscale"),
        ),
        Example("another exception", lambda: _refused(error="RuntimeError: unscale_() is being called after step().")),
    )  # fmt: skip
    SICK = (Example("by unscale_", _refused), Example("by step", lambda: _refused("scaler_step")))

    def check(self, run: Run) -> Iterator[Finding]:
        found = matching(run, FP16_GRADIENTS)
        if not found:
            return
        severity, evidence = aftermath(run, found, mistake=True)
        half = [m for m in run.modules if m.trainable and "float16" in m.dtypes]
        yield self.finding(
            "Trained weights are held in FP16, and GradScaler refuses them: “Attempting to unscale FP16 gradients”.",
            evidence=[*evidence, *_weights(half)],
            fixes=[
                _fp32_weights(run, half),
                bf16_autocast(run, "BF16 has the range of FP32 and needs no loss scaling."),
            ],
            location=place_of(found),
            severity=severity,
        )


def _weights(half: list[ModuleRow]) -> list[Evidence]:
    if not half:
        return []
    count = sum(m.trainable for m in half)
    names = ", ".join(f"`{m.module or m.type}`" for m in half[:3]) + (", …" if len(half) > 3 else "")
    text = f"{counted(count, 'trained parameter')} in {counted(len(half), 'module')} are FP16: {names}."
    return [Evidence("fp16_trained_parameters", count, text)]


def _fp32_weights(run: Run, half: list[ModuleRow]) -> Fix:
    kind = optimizer_type(run)
    made = f"torch.optim.{kind}" if kind else "torch.optim.AdamW"
    where = comment(line_of(run, "backward"))
    code = f"""\
for parameter in model.parameters():  # before the optimizer is made
    if parameter.requires_grad:
        parameter.data = parameter.data.float()
optimizer = {made}([p for p in model.parameters() if p.requires_grad], ...)

with torch.autocast(...):  # keep it: it casts the weights for each forward pass
    ...
scaler.scale(loss).backward(){where}"""
    whole = half and all(m.trainable == m.parameters for m in half)
    expected = "Gradients are FP32 then, and the scaler takes them" + (
        "; a model loaded with torch_dtype=torch.float16 can be loaded in FP32 instead." if whole else "."
    )
    return Fix("Hold the trained weights in FP32", code, expected, Grade.OBSERVED)
