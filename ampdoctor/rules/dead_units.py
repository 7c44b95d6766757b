"""The rule dead-units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.zero_gradients import compared_with_fp32
from ampdoctor.analysis.forward.dead_places import DeadPlace, dead_places
from ampdoctor.analysis.twins.shared_with_fp32 import without_half
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(
    *, steps: int = 5, zeros: int = 100, gradient: int = 100, kind: str = "ReLU", dtype: str = "float16"
) -> RunBuilder:
    """Two linear layers with a ReLU between: so many of 100 activations and of 100 gradients behind it are zero."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    alive, left = {-1: 100 - zeros}, {-9: 100 - gradient}
    for step in range(steps):
        run.step(loss=1.38)
        if not step:
            run.module("0").module("1", type=kind, parameters=0, trainable=0).module("2")
        for layer in ("0", "2"):
            run.tensor(layer, "weight", slot="weight", exponents={-3: 100}, shape=[10, 10])
        run.tensor("0", "activation", dtype=dtype, exponents={1: 100}, inputs_finite=True)
        run.tensor("1", "activation", dtype=dtype, exponents=alive, zeros=zeros, inputs_finite=True)
        run.tensor("2", "activation", dtype=dtype, exponents={0: 100}, inputs_finite=True)
        for layer in ("2", "1"):
            run.tensor(layer, "grad_output", dtype=dtype, exponents={-8: 100})
        run.tensor("0", "grad_output", dtype=dtype, exponents=left, zeros=gradient)
        for layer in ("0", "2"):
            run.tensor(layer, "weight_grad", slot="weight", exponents=left, zeros=gradient, shape=[10, 10])
    return run


def _twinned(nonzero: int) -> RunBuilder:
    run = _run().twin_step("fp32")
    return run.twin("run", "1", "activation", slot="out", nonzero=nonzero, flushed=nonzero)


class DeadUnits(Rule):
    """A layer's activations are all zero, so that no gradient reaches what lies below it, in any format.

    What it means
        Every input of a ReLU (or of anything else that is flat below zero) is negative, for every unit and every
        sample. Its output is zero, and so is its slope: the gradient that arrives from above ends there. It is no
        underflow, for FP32 computes the same zeros.

    Why it matters
        The layers below never move again, and the layer above sees nothing but its own bias. The loss stands still
        near the value of a constant guess. No loss scale and no format changes anything.

    How to fix
        Start the layer again with a zero bias and an initialisation made for its activation, and train it with a lower
        learning rate: one update that is too large pushes all units over the edge. An activation with a slope below
        zero (LeakyReLU, GELU, SiLU) or a normalisation before it keeps a way back.

    Not to be mistaken for
        The sparsity of a ReLU, where some units or samples are zero. Dropout, pruned weights, a branch that the loss
        does not use, a zero-initialised layer on its first steps. Activations that only FP16 makes zero.
    """

    code = "AMP703"
    name = "dead-units"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = ("norm-overflow", "comm-hook-underflow")
    thresholds = {
        "starved": Threshold(0.1, "a tenth of the parameters: one narrow branch is a part of the run and not the run")
    }
    HEALTHY = (
        Example("the sparsity of a ReLU", lambda: _run(zeros=95, gradient=95)),
        Example("dropout of everything", lambda: _run(kind="Dropout")),
        Example("one step by chance", lambda: _run(steps=1)),
        Example("measured: only FP16 makes zeros of it", lambda: _twinned(100)),
    )
    SICK = (
        Example("all units, in FP16", _run),
        Example("all units, in FP32", lambda: _run(dtype="float32")),
        Example("measured: FP32 has the same zeros", lambda: _twinned(0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        for place in dead_places(run)[:1]:
            yield self._finding(run, place)

    def _finding(self, run: Run, place: DeadPlace) -> Finding:
        below, zeros = place.below, place.zeros
        starved = sum(r.numel for r in place.last.starved)
        total = sum(r.numel for r in place.last.gradients.values())
        measured = ("activation", zeros.module, zeros.slot) in compared_with_fp32(run)
        sure = measured or without_half(run)
        kind = next((m.type for m in run.modules if m.module == zeros.module), "")
        where = f"`{zeros.module}` ({kind})" if zeros.slot.startswith("out") else f"what follows `{below.module}`"
        share = starved / total if total else 0.0
        alone = "the run is FP32 throughout" if sure else "this was not compared with FP32"
        fp32 = "its FP32 twin has the same zeros" if measured else alone
        return self.finding(
            f"All units are dead in {where}: every activation is zero, so no gradient reaches `{below.module}` and "
            f"what lies below it; {fp32}.",
            evidence=[
                Evidence(
                    "zero_activations", zeros.zeros,
                    f"On step {zeros.step}, {zeros.zeros} of {zeros.numel} elements of `{zeros.site}` are zero, made "
                    f"of values of up to {number(below.absmax)} in `{below.site}`.",
                    Grade.MEASURED if measured else Grade.OBSERVED,
                ),
                Evidence(
                    "zero_gradients_share", share,
                    f"The gradients of {percent(share)} of the trained parameters are exactly zero, those of "
                    f"{counted(len(place.before), 'tensor')} below it among them.",
                ),
                Evidence(
                    "steps_affected", len(place.steps),
                    f"So it is on the last {counted(len(place.steps), 'step')} examined, from step {place.since} on.",
                ),
            ],
            fixes=_fixes(run, place),
            location=Location(
                (
                    f"{zeros.site} (activation)",
                    *(f"{r.site} (weight_grad)" for r in place.before),
                ),
                place.since,
                place.steps[-1],
            ),
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
            grade=Grade.MEASURED if measured else Grade.OBSERVED,
            severity=Severity.ERROR if share >= self.threshold("starved") else Severity.WARNING,
        )  # fmt: skip


def _fixes(run: Run, place: DeadPlace) -> list[Fix]:
    zeros = place.zeros
    matrices = [r.module for r in place.before if len(r.shape) > 1]
    start = f"""\
layer = model.get_submodule("{matrices[-1] if matrices else place.below.module}")
torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
torch.nn.init.zeros_(layer.bias)"""
    leaky = (
        f'model.set_submodule("{zeros.module}", torch.nn.LeakyReLU(0.05))'
        if zeros.slot.startswith("out") and any(m.leaf and m.module == zeros.module for m in run.modules)
        else "h = torch.nn.functional.leaky_relu(h, 0.05)  # in place of relu"
    )
    return [
        Fix(
            "Start the layer again, and lower the learning rate",
            start,
            "Half of the units are positive again, and gradients come through.",
        ),
        Fix(
            "Use an activation with a slope below zero", leaky, "Units that are pushed below zero find their way back."
        ),
    ]
