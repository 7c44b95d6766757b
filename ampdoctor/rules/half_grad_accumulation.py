"""The rule half-grad-accumulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type, line_of
from ampdoctor.analysis.backward.gradient_additions import added_by_hand, energy_wrong, gradient_sums, saturated_rows
from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.storage.accumulators import Accumulator
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, TensorRow


def _run(ratio: float, *, additions: int = 255, cosine: float = 0.999, dtype: str = "bfloat16") -> RunBuilder:
    """Three steps of a layer whose gradient is added up over micro-batches, and comes to `ratio` of what it should."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(3):
        run.step(loss=0.3, micro_batches=additions + 1)
        run.call("backward", file="train.py", line=20)
        run.tensor(
            "body", "weight_grad", slot="weight", dtype=dtype, exponents={-6: 100}, additions=additions,
            sum_cosine=cosine, sum_norm_ratio=ratio,
        )  # fmt: skip
    return run


def _embedding(error: float) -> RunBuilder:
    run = RunBuilder().step(loss=0.3).twin_step("fp32")
    run.tensor("words", "weight_grad", slot="weight", dtype="bfloat16", exponents={-6: 100})
    return run.op(
        "aten.embedding_dense_backward", "words", direction="backward", dtype_out="bfloat16", relative_error=error
    )


def _fp32() -> RunBuilder:
    run = RunBuilder().step(loss=0.3, micro_batches=64)
    return run.tensor("body", "weight_grad", slot="weight", exponents={-6: 100})


class HalfGradAccumulation(Rule):
    """Gradients are added up in half precision: what later micro-batches add is rounded away.

    What it means
        `.grad` has the dtype of the weight. Once the sum is 256 times what a micro-batch adds, BF16 does not change any
        more (FP16: 2048 times), and well before that, each addition is rounded coarsely. The same happens within one
        batch to the row of an embedding that occurs often, where the kernel adds up in half.

    Why it matters
        The accumulated gradient is shorter than the micro-batches say, and turned: later ones hardly count.

    How to fix
        Accumulate in FP32: FP32 weights under autocast do so by themselves; FSDP has `reduce_dtype=torch.float32`. With
        half weights, keep FP32 buffers beside them. Fewer, larger micro-batches help as well.

    Not to be mistaken for
        Accumulation in FP32. A few micro-batches, of which nothing is lost. Gradients that cancel.
    """

    code = "AMP306"
    name = "half-grad-accumulation"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    thresholds = {
        "wrong_warning": Threshold(*LIMITS["wrong_warning"]),
        "wrong_error": Threshold(*LIMITS["wrong_error"]),
    }
    HEALTHY = (
        Example("a few micro-batches", lambda: _run(0.999, additions=7, cosine=0.99999)),
        Example("FP32 gradients", _fp32),
        Example("an embedding whose rows occur rarely", lambda: _embedding(0.003)),
    )
    SICK = (
        Example("256 micro-batches into a BF16 gradient", lambda: _run(0.5)),
        Example("sums that are turned", lambda: _run(0.95, cosine=0.97, dtype="float16")),
        Example("an embedding row that occurs a thousand times", lambda: _embedding(0.6)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        limit = self.threshold("wrong_warning")
        hurt = [r for r in gradient_sums(run) if energy_wrong(r) >= limit]
        by_hand = [a for a in added_by_hand(run) if (a.last.energy_absorbed or 0.0) >= limit]
        rows = [r for r in saturated_rows(run) if (r.relative_error or 0.0) ** 2 >= limit]
        if hurt:
            yield self._accumulated(run, hurt)
        elif by_hand:
            yield self._by_hand(by_hand[0])
        elif rows:
            yield self._rows(run, rows)

    def _severity(self, wrong: float) -> Severity:
        return Severity.ERROR if wrong >= self.threshold("wrong_error") else Severity.WARNING

    def _accumulated(self, run: Run, hurt: Sequence[TensorRow]) -> Finding:
        worst = max(hurt, key=lambda r: (energy_wrong(r), r.numel))
        title, passes = title_of_dtype(worst.dtype), (worst.additions or 0) + 1
        ratio, cosine = worst.sum_norm_ratio or 0.0, worst.sum_cosine or 0.0
        sites = {f"{r.site} (weight_grad)": None for r in sorted(hurt, key=lambda r: -energy_wrong(r))}
        steps = [r.step for r in hurt]
        return self.finding(
            f"Gradients are added up in {title}: after {passes} micro-batches the gradient of `{worst.site}` has "
            f"{percent(ratio)} of its length.",
            evidence=[
                Evidence("norm_ratio", ratio, f"Added up in FP32, the same {passes} gradients are "
                         f"{number(1.0 / max(ratio, 1e-9))} times as long (step {worst.step}).", Grade.MEASURED),
                Evidence("cosine", cosine, f"Their directions differ by a cosine of {number(cosine)}.", Grade.MEASURED),
                Evidence("micro_batches", passes, f"{title} takes no addition below a "
                         f"{'512th to a 256th' if title == 'BF16' else '4096th to a 2048th'} of the sum, and "
                         f"{passes} are added up."),
                Evidence("parameters", len(sites), f"So it is with {counted(len(sites), 'parameter')}."),
            ],
            fixes=_fixes(run),
            location=Location(tuple(sites), min(steps), max(steps), source=line_of(run, "backward")),
            grade=Grade.MEASURED,
            severity=self._severity(energy_wrong(worst)),
        )  # fmt: skip

    def _by_hand(self, total: Accumulator) -> Finding:
        last = total.last
        share, energy = last.absorbed / max(last.nonzero, 1), last.energy_absorbed or 0.0
        return self.finding(
            f"Gradients are added up by hand in {total.title}: {percent(share)} of the elements do not take what is "
            "added.",
            evidence=[
                Evidence("unchanged_share", share, f"On step {last.step}, {percent(share)} of the {last.nonzero} "
                         f"elements that {total.place} means to change kept their value."),
                Evidence("energy_absorbed", energy, f"They held {percent(energy)} of what was to be added (sum of "
                         "squares)."),
            ],
            fixes=[Fix("Add up in FP32", "total = torch.zeros_like(p, dtype=torch.float32)\n"
                       f"total += p.grad.float()  # {total.source or 'where it is added'}",
                       "FP32 takes additions down to 2^-24 of the sum.")],
            location=Location((), total.rows[0].step, last.step, source=total.source),
            severity=self._severity(energy),
        )  # fmt: skip

    def _rows(self, run: Run, rows: Sequence[OpRow]) -> Finding:
        worst = max(rows, key=lambda r: r.relative_error or 0.0)
        error, title = worst.relative_error or 0.0, title_of_dtype(worst.dtype_out)
        where = f"`{worst.module}`" if worst.module else "an embedding"
        source = f"{worst.file}:{worst.line}" if worst.file and worst.line is not None else None
        return self.finding(
            f"The gradient of {where} is added up in {title}, row by row: rows that occur often saturate.",
            evidence=[
                Evidence("relative_error", error, f"On step {worst.step}, `{worst.op}` is {percent(min(error, 1.0))} "
                         "of its length off from the same sum in FP32.", Grade.MEASURED),
            ],
            fixes=_fixes(run),
            location=Location((f"{worst.module}.weight (weight_grad)",), worst.step, rows[-1].step, source=source),
            grade=Grade.MEASURED,
            confidence=Confidence.HIGH,
            severity=self._severity(error**2),
        )  # fmt: skip


def _fixes(run: Run) -> list[Fix]:
    device = device_type(run)
    autocast = f"""\
model = model.float()  # .grad is then FP32, and sums are
with torch.autocast("{device}", dtype=torch.bfloat16):  # around forward and loss
    ..."""
    buffers = """\
sums = [torch.zeros_like(p, dtype=torch.float32) for p in model.parameters()]
for s, p in zip(sums, model.parameters()):  # after each backward
    s += p.grad.float()
    p.grad = None
for s, p in zip(sums, model.parameters()):  # before optimizer.step()
    p.grad = s.to(p.dtype)"""
    return [
        Fix("Keep the weights in FP32, and use autocast", autocast, "Gradients are added up in FP32."),
        Fix("Or keep FP32 buffers for the sums", buffers, "Only the whole sum is rounded, once."),
    ]  # fmt: skip
