"""The rule scaler-disabled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, comment, line_of
from ampdoctor.analysis.backward.limits import Limits
from ampdoctor.analysis.backward.vanishing_case import lasting_case
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.calls.scaling import ScalingKind, loss_scaling
from ampdoctor.analysis.columns import trains_in_fp16
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import ScalerRow, TensorRow


def _run(dtype: str = "float16", *, enabled: bool = False, made_for: str = "cpu") -> RunBuilder:
    """Steps in `dtype`, with gradients far from any edge."""
    run = RunBuilder(device="cpu: x86_64")
    for _ in range(3):
        run.step(loss=2.0).module("head", device="cpu")
        run.tensor("head", "activation", dtype=dtype, autocast=dtype, exponents={0: 100})
        run.scaler("seen", enabled=enabled, device_type=made_for, scale=1024.0 if enabled else None)
        run.call("scale", target="scaler0", file="train.py", line=8).call("backward", scaled="none")
        run.tensor("head", "grad_output", dtype=dtype, exponents={-10: 100})
        run.tensor("head", "weight_grad", slot="weight", exponents={-8: 100}, shape=[10, 10])
    return run


class ScalerDisabled(Rule):
    """The script has a GradScaler and trains in FP16, but the scaler is disabled.

    What it means
        A disabled GradScaler passes everything through: `scale(loss)` returns the loss as it is, `step` is the
        optimizer's own. It is disabled by `enabled=False`, and torch does it by itself, with one warning, where the
        device that the scaler was made for (CUDA, unless told otherwise) is not there.

    Why it matters
        FP16 gradients below 2^-24 are flushed to zero, and a step with infinities in its gradients is taken and not
        skipped. The script reads as if both were taken care of.

    How to fix
        Make it for the device that the model is on, with the condition that switches FP16 on:
        `torch.amp.GradScaler(x.device.type, enabled=use_fp16)`. Or use BF16, which needs none.

    Not to be mistaken for
        A scaler that is switched off because the run is in BF16 or FP32. One that is switched off by `enabled=False`
        while gradients vanish: gradient-underflow names that, and its cure. A loss that is scaled by hand. FP16 in a
        frozen model that gets no gradients.
    """

    code = "AMP110"
    name = "scaler-disabled"
    severity = Severity.WARNING
    needs = ("scaler.enabled", "tensors")
    HEALTHY = (Example("BF16", lambda: _run("bfloat16")), Example("an enabled scaler", lambda: _run(enabled=True)))
    SICK = (
        Example("made for cuda, and the model is on the CPU", lambda: _run(made_for="cuda")),
        Example("made for another accelerator", lambda: _run(made_for="xpu")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        seen = next((row for row in run.scaler if row.event == "seen"), None)
        if seen is None or loss_scaling(run).kind is not ScalingKind.DISABLED:
            return
        half = [r for r in run.tensors("activation", dtypes=["float16"]) if r.grad_enabled]
        if not trains_in_fp16(run) or not calls_named(run, "backward"):
            return
        case = lasting_case(run, Limits())
        harmed = case is not None and not case.harmless
        by_torch = _made_for_another_device(run, seen)
        if harmed and not by_torch:
            return  # switched off on purpose: gradient-underflow says what there is to say
        evidence = _evidence(run, seen, half)
        severity = self.severity if by_torch else Severity.NOTE
        if case is not None and harmed:
            severity = case.verdict["severity"]
            grade = case.evidence[0].grade if case.evidence else Grade.ESTIMATED
            evidence.append(Evidence("harm", case.what, f"{case.what[:1].upper()}{case.what[1:]}.", grade))
        so = ", and its gradients vanish" if harmed else ""
        yield self.finding(
            f"The run trains in FP16, but its GradScaler is disabled: the loss is not scaled{so}.",
            evidence=evidence,
            fixes=_fixes(run, seen),
            location=Location((), half[0].step, half[-1].step, source=line_of(run, "scale", "backward")),
            severity=severity,
        )


def _devices(run: Run) -> list[str]:
    return sorted({m.device for m in run.modules if m.device})


def _made_for_another_device(run: Run, seen: ScalerRow) -> bool:
    """Whether torch has disabled it, and not the user: it was made for a device on which nothing is."""
    on = _devices(run)
    return bool(on) and seen.device_type is not None and seen.device_type not in on


def _evidence(run: Run, seen: ScalerRow, half: list[TensorRow]) -> list[Evidence]:
    modules = len({r.module for r in half})
    found = [
        Evidence(
            "scaler_enabled", False,
            f"`{seen.scaler}.is_enabled()` was `False` when it was first used, in step {seen.step}.",
        ),
        Evidence("fp16_modules", modules, f"{counted(modules, 'module')} with gradients returned FP16."),
    ]  # fmt: skip
    if seen.device_type is not None and _made_for_another_device(run, seen):
        on = _devices(run)
        text = f"It was made for `{seen.device_type}`; the model's parameters are on `{' and '.join(on)}`."
        found.append(Evidence("device_of_scaler", seen.device_type, text))
    return found


def _fixes(run: Run, seen: ScalerRow) -> list[Fix]:
    on = next((m.device for m in run.modules if m.device), None) or "cuda"
    was = f'now for "{seen.device_type}"' if seen.device_type not in {None, on} else "now disabled"
    line = line_of(run, "scale")
    used = f"used at {line}" if line else None
    code = f'scaler = torch.amp.GradScaler("{on}", enabled=True){comment(was, used)}'
    text = "It finds the largest scale that fits, and skips the steps on which gradients overflow."
    return [
        Fix("Enable the scaler, for the device of the model", code, text),
        bf16_autocast(run, "Gradients keep FP32's range unscaled, and no scaler is needed."),
    ]
