"""The rule vanishing-gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.vanishing_cures import vanishing_cures
from ampdoctor.analysis.backward.layer_gradients import Depth, fading
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.analysis.words.loss_report import loss_evidence
from ampdoctor.finding import Confidence, Evidence, Finding, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run


def _run(
    binades: int,
    kind: str = "SGD",
    *,
    dtype: str = "float32",
    top: int = -3,
    loss: float = 1.0,
    eps: float | None = None,
) -> RunBuilder:
    """Six steps of eight layers, of which each has a gradient that many binades smaller than the one above it."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(6):
        run.step(loss=1.38 * loss**step)
        if not step:
            run.optimizer(kind, eps=eps)
        for layer in range(8):
            name = f"body.{layer}"
            run.module(name) if not step else None
            run.tensor(name, "weight", slot="weight", exponents={-3: 100}, shape=[10, 10])
            run.tensor(name, "activation", dtype=dtype, exponents={0: 100})
        for layer in range(8):
            gradient = {top - binades * (7 - layer): 100}
            run.tensor(f"body.{layer}", "weight_grad", slot="weight", exponents=gradient, shape=[10, 10])
    return run


def _twinned(binades: int) -> RunBuilder:
    """An FP16 run, whose FP32 twin knows the gradients on the last step."""
    run = _run(0, dtype="float16").twin_step("fp32")
    for layer in range(8):
        energy = 100 * 4.0 ** (-3 - binades * (7 - layer))
        run.twin("fp32", f"body.{layer}", "weight_grad", shape=[10, 10], sum_squares_fp32=energy)
    return run


class VanishingGradient(Rule):
    """The gradient fades away from layer to layer in FP32 too: the first layers would not learn in any format.

    What it means
        On its way back each layer makes the gradient smaller: a saturated sigmoid or tanh by its slope, small weights
        by their size. Over many layers that multiplies, until the first ones get a gradient that moves them by less
        than a ten-thousandth of what the last ones move. FP16 shows zeros there, but FP32 does not train them either.

    Why it matters
        The network above trains on what the first layers make at random, or not at all, since a deep stack of
        saturated layers hands on next to nothing of its input. A larger loss scale or BF16 brings the zeros back to
        life and changes nothing about that.

    How to fix
        Use activations that do not saturate (ReLU, GELU), an initialisation made for them, and normalisation or
        residual connections, which carry the gradient past the layers. An optimizer that divides by the gradient's
        size (Adam) moves such layers all the same, as long as their gradients are not far below its epsilon.

    Not to be mistaken for
        Gradients that FP16 flushes and FP32 would use: gradient-underflow. A run that has converged, where all layers
        have small gradients alike. A loss with a small factor, which makes all of them small. Frozen layers, unused
        branches, and zero-initialised ones, whose gradients are exactly zero. The rows of an embedding.
    """

    code = "AMP702"
    name = "vanishing-gradient"
    severity = Severity.ERROR
    needs = ("steps", "tensors", "optimizers")
    after = ("comm-hook-underflow",)
    thresholds = {
        "share": Threshold(
            1e-4,
            "of 69 networks of 4 to 20 layers trained in FP32 by SGD or Adam, none with less learned; with ten times "
            "as much, some did",
        ),
        "trend": Threshold(0.8, "four pairs of layers in five: it is depth, and not an odd layer here and there"),
        "jump": Threshold(0.5, "most of it between two neighbours is no matter of depth"),
        "standstill": Threshold(0.9, "a loss within a tenth of its start has not begun to fall"),
        "learning": Threshold(0.5, "a loss that has halved is falling: what is trained is enough"),
    }
    HEALTHY = (
        Example("all layers alike", lambda: _run(0)),
        Example("all small, as in a converged run or BF16", lambda: _run(0, top=-33)),
        Example("a factor of 4 over eight layers", lambda: _run(1, top=-3)),
        Example("faded, but far above Adam's epsilon", lambda: _run(3, "Adam", top=0, eps=1e-8)),
        Example("faded, and learning", lambda: _run(3, loss=0.4)),
        Example("measured: FP32 would train them", lambda: _twinned(1)),
    )
    SICK = (
        Example("three binades a layer, in FP32", lambda: _run(3)),
        Example("below Adam's epsilon", lambda: _run(8, "Adam", eps=1e-8)),
        Example("measured: faded in the FP32 twin as well", lambda: _twinned(3)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = fading(run, self.threshold("share"), self.threshold("trend"), self.threshold("jump"))
        curve = loss_curve(run)
        left = curve.end / curve.start if curve.start and curve.end is not None else 1.0
        if found and left >= self.threshold("learning"):
            yield self._finding(run, found, left)

    def _finding(self, run: Run, found: Sequence[Depth], left: float) -> Finding:
        depth, first_step = found[-1], found[0].step
        first, best = depth.layers[0], depth.best
        standing = depth.standing(self.threshold("share"))
        still = left >= self.threshold("standstill")
        fp32 = "its FP32 twin" if depth.by_twin else "a run that keeps FP32's range"
        since = run.steps[0].step if first_step <= _EARLY else first_step
        return self.finding(
            f"The gradient vanishes with depth, in {fp32} too: at `{first.site}` it is {number(first.gradient)}, "
            f"at `{best.site}` {number(best.gradient)}, so {len(standing)} of {counted(len(depth.layers), 'layer')} "
            "hardly move in any format.",
            evidence=[
                Evidence(
                    "first_over_best", depth.share,
                    f"On step {depth.step} the optimizer moves the first layers by {number(depth.share)} of what it "
                    f"moves `{best.site}`, each beside its own weights.",
                    Grade.MEASURED if depth.by_twin else Grade.OBSERVED,
                ),
                Evidence(
                    "pairs_in_order", depth.trend,
                    f"It shrinks with depth: of the pairs of layers whose gradients differ by more than a factor of "
                    f"two, {percent(depth.trend)} have the earlier one's smaller.",
                    Grade.MEASURED if depth.by_twin else Grade.OBSERVED,
                ),
                Evidence(
                    "steps_affected", len(found),
                    f"So it is on {counted(len(found), 'step')} looked at in this way, up to step {depth.step}.",
                ),
                *loss_evidence(run),
            ],
            fixes=vanishing_cures(run, depth),
            location=Location(
                tuple(f"{layer.site} (weight_grad)" for layer in standing), since, depth.step
            ),
            confidence=Confidence.HIGH if still and len(found) > 1 else Confidence.MEDIUM,
            grade=Grade.MEASURED if depth.by_twin else Grade.OBSERVED,
            severity=Severity.ERROR if still else Severity.WARNING,
        )  # fmt: skip


_EARLY = 2
"""The first second opinion is given on this step: what it finds of the model's depth was so before."""
