"""The rule attention-overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import bf16_autocast, device_type
from ampdoctor.analysis.forward.birth_causes import Kind, causes_of
from ampdoctor.analysis.words.birth_report import (
    LASTING,
    at,
    cause_evidence,
    cause_location,
    cause_severity,
    comment_of,
    harm,
    tried_on,
)
from ampdoctor.finding import Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.forward.birth_causes import Cause
    from ampdoctor.trace.run import Run


def _run(
    loss: float = math.nan, *, keys: int = 2, product: str = "bmm", softmax: str = "_softmax", **scores: Any
) -> RunBuilder:
    """Three steps of attention whose scores are what `scores` says; `keys` is the row that the keys come from."""
    run = RunBuilder(device="cpu")
    born = {"born": 9, "overflowed": 9, "first_born": 3, "absmax": 1.4e5}
    for _ in range(3):
        lost = math.isnan(loss)
        run.step(loss=loss, loss_scale=65536.0, found_inf=lost, applied=not lost)
        run.twin_step(kind="local").op("aten.addmm", "q", seq=1, inputs_from=[-1])
        run.op("aten.addmm", "k", seq=2, inputs_from=[-1])
        run.op(f"aten.{product}", "attn", seq=3, inputs_from=[1, keys], file="m.py", line=7, **(born | scores))
        run.op("aten.div", "attn", seq=4, inputs_from=[3])
        run.op(f"aten.{softmax}", "attn", seq=5, inputs_from=[4])
        run.op("aten.bmm", "attn", seq=6, inputs_from=[5, 1])
    return run


class AttentionOverflow(Rule):
    """Attention scores pass FP16's 65504 before the softmax: the loss is NaN from there on.

    What it means
        The product of queries and keys is too large for FP16, which ends at 65504, while queries and keys themselves
        are of ordinary size: a sum over the head's width of products of some hundreds is enough. It is divided by
        sqrt(d) only afterwards, and the softmax of an infinity is NaN.

    Why it matters
        With a GradScaler every such step is skipped and the scale falls for nothing. Without one the NaN reaches the
        weights, and the model is lost. FP32 and BF16 hold scores up to 3e38.

    How to fix
        Scale the queries before the product instead of the scores after it, or use
        `F.scaled_dot_product_attention`, which does. Where scores grow in the course of the training, normalise
        queries and keys (QK-norm). BF16 has the range for them as they are. A lower loss scale is useless: it has no
        part in the forward pass.

    Not to be mistaken for
        The -inf of a mask, and rows that are masked entirely, whose softmax is NaN in FP32 too. Overflow in a
        projection or feed-forward layer (activation-overflow). Similarities in a loss (loss-overflow).
    """

    code = "AMP202"
    name = "attention-overflow"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    after = ("scaler-bypassed", "optimizer-stepped-twice", "gradient-penalty-scaled")
    thresholds = {"steps_error": Threshold(*LASTING)}
    HEALTHY = (
        Example("scores that fit", lambda: _run(2.3, born=0, overflowed=0, first_born=None, absmax=900.0)),
        Example("a router: one factor is a weight", lambda: _run(keys=-1)),
        Example("scores that go into no softmax", lambda: _run(softmax="relu")),
        Example("FP32 is not finite either", lambda: _run(born_fp32=9, overflowed=0)),
    )  # fmt: skip
    SICK = (Example("scores beyond 65504", _run), Example("of one head, without a batch", lambda: _run(product="mm")))

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.ATTENTION)
        if not found:
            return
        row = found[0].birth.row
        yield self.finding(
            f"Attention scores overflow FP16 {at(row)}: the product of queries and keys passes 65504 before it reaches "
            f"the softmax, and {harm(found)}.",
            evidence=cause_evidence(run, found),
            fixes=_fixes(run, found),
            location=cause_location(found),
            grade=Grade.MEASURED,
            severity=cause_severity(run, found, self.threshold("steps_error")),
        )


def _fixes(run: Run, found: list[Cause]) -> list[Fix]:
    line = comment_of(found[0].birth.row)
    return [
        Fix(
            "Scale the queries before the product",
            f"scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1){line}",
            "Scores come out at their final size, sqrt(d) times smaller than now.",
        ),
        Fix(
            "Use torch's fused attention",
            f"out = F.scaled_dot_product_attention(q, k, v){line}, without a softmax of your own"
            if line
            else "out = F.scaled_dot_product_attention(q, k, v)",
            "It scales before it multiplies, and keeps the scores in FP32 where its kernel is fused.",
        ),
        Fix(
            "Normalise queries and keys (QK-norm)",
            "q, k = F.layer_norm(q, q.shape[-1:]), F.layer_norm(k, k.shape[-1:])",
            "Scores are bounded by the head's width, however large the projections grow.",
        ),
        tried_on(run, found, "bf16", bf16_autocast(run, "BF16 holds scores up to 3e38.")),
        Fix(
            "Compute the scores in FP32",
            f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    scores = q.float() @ k.float().transpose(-2, -1) / math.sqrt(q.shape[-1]){line}""",
            "FP32 holds them as they are, at the price of a slower product.",
        ),
    ]
