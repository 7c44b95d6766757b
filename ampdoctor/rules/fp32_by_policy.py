"""The rule fp32-by-policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.speed import Speed, speeds
from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_ATTENTION = frozenset({"aten._softmax", "aten._safe_softmax"})


def _run(
    fp32_ms: float, op: str = "aten._softmax", autocast: str | None = "bfloat16", products: float = 4.0
) -> RunBuilder:
    run = RunBuilder().step(loss=2.0)
    run.timing("aten.mm", "attention", dtype_in="bfloat16", dtype_out="bfloat16", autocast=autocast, host_ms=products)
    columns = {"dtype_in": "float32", "dtype_out": "float32", "autocast": autocast, "host_ms": fp32_ms}
    return run.timing(op, "attention", **columns)


class Fp32ByPolicy(Rule):
    """Under autocast, most of the forward pass is computed in FP32 all the same.

    What it means
        Autocast runs matrix products and convolutions in half. Softmax, norms, losses, exponentials and whatever
        follows them until the next product are left in FP32, or taken there by a cast, because half could not hold
        them.

    Why it matters
        Only what runs in half becomes faster. Where FP32 takes most of the time, autocast has little to speed up,
        and adds casts.

    How to fix
        Fused kernels that keep FP32 inside and read and write half: `scaled_dot_product_attention` in place of a
        softmax by hand, fused cross-entropy and norms, or `torch.compile`, which fuses what lies between products.

    Not to be mistaken for
        FP32 that takes little time. Forcing these operations to half: that is what makes runs overflow.
    """

    code = "AMP608"
    name = "fp32-by-policy"
    severity = Severity.NOTE
    needs = ("timings",)
    thresholds = {
        "forward_share": Threshold(0.5, "of the forward pass under autocast: half of it then gains nothing from half"),
        "microseconds": Threshold(
            50.0, "an operation: starting one takes 5 to 10, and where that is what takes the time the dtype is nothing"
        ),
    }
    HEALTHY = (
        Example(
            "an optimizer that steps inside the block",
            lambda: _run(1.0).timing("aten.addcdiv_", direction="step", autocast="bfloat16", host_ms=20.0),
        ),
        Example("products take the time", lambda: _run(1.0)),
        Example("operations that take as long as it takes to start them", lambda: _run(0.02, products=0.01)),
        Example("a run in FP32", lambda: _run(9.0, autocast=None)),
    )
    SICK = (
        Example("a softmax by hand", lambda: _run(8.0)),
        Example("norms", lambda: _run(6.0, "aten.native_layer_norm")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        for speed in speeds(run)[-1:]:
            forward = [row for row in speed.rows if row.autocast is not None and row.direction == "forward"]
            time = speed.time(forward)
            share = speed.time(speed.kept_fp32) / time if time else 0.0
            kept = 1e3 * time * share / max(sum(row.calls for row in speed.kept_fp32), 1)
            if speed.in_half and share >= self.threshold("forward_share") and kept >= self.threshold("microseconds"):
                yield self._finding(speed, share)

    def _finding(self, speed: Speed, share: float) -> Finding:
        kept = Speed(speed.step, speed.on_device, tuple(speed.kept_fp32))
        longest = kept.grouped(lambda row: row.op)[:3]
        named = ", ".join(f"{op} {number(ms)} ms" for op, ms, _ in longest)
        modules = [m for m, _, _ in kept.grouped(lambda row: row.module)[:5] if m]
        return self.finding(
            f"{percent(share)} of the forward pass under autocast is computed in FP32.",
            evidence=[
                Evidence(
                    "forward_share", share,
                    f"On step {speed.step}, operations that autocast leaves in FP32 took {number(kept.total_ms)} ms, "
                    f"{percent(share)} of what ran under it: {named}.",
                )
            ],
            fixes=[_fix({op for op, _, _ in longest})],
            location=Location(tuple(modules), speed.step, speed.step),
            confidence=Confidence.MEDIUM,
        )  # fmt: skip


def _fix(ops: set[str]) -> Fix:
    if ops & _ATTENTION:
        return Fix(
            "Use the fused attention",
            "F.scaled_dot_product_attention(q, k, v)  # instead of softmax(q @ k.transpose(-2, -1)) @ v",
            "Its softmax runs in FP32 inside the kernel; what is read and written is half.",
        )
    return Fix(
        "Fuse what lies between the products",
        "model = torch.compile(model)",
        "FP32 stays inside the fused kernels, and what they read and write becomes half where it may.",
    )
