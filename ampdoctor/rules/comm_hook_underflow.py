"""The rule comm-hook-underflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.backward.sent_gradients import Sent, comm_hook, sent_in_fp16
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run


def _hook(name: str = "fp16_compress_hook") -> RunBuilder:
    return RunBuilder().step(loss=1e-6).call("comm_hook", target=name, file="train.py", line=8)


def _sent(energy: float, flushed: int = 900, **columns: Any) -> RunBuilder:
    """One step of which 1000 gradients were sent in FP16, by a line that is known."""
    row = {
        "op": "c10d.allreduce_", "dtype_in": "float32", "dtype_out": "float16", "numel": 1000, "nonzero": 1000,
        "flushed": flushed, "beyond": 0, "energy_flushed": energy, "largest": 1e-8, "file": "train.py", "line": 21,
    }  # fmt: skip
    return _hook().rounding("sent", **(row | columns))


def _arrived(name: str, exponents: dict[int, int], zeros: int) -> RunBuilder:
    """One step on a device where nobody could look: what arrived after the all-reduce is all there is."""
    run = _hook(name).tensor("0", "grad_output", exponents={-28: 1000})
    return run.tensor("0", "weight_grad", slot="weight", exponents=exponents, zeros=zeros)


class CommHookUnderflow(Rule):
    """Gradients are sent to the other ranks in FP16, which flushes them to zero.

    What it means
        fp16_compress_hook, a reduce_dtype of float16 or a hand-written all-reduce casts FP32 gradients to FP16 before
        they are added up over the ranks. What is at or below 2^-25 is zero then, and what is 65520 or more infinite.

    Why it matters
        The model runs in FP32, and its gradients are zero all the same: weights stand still without any error.

    How to fix
        Send BF16 (bf16_compress_hook, which needs NCCL), or FP32. To save bandwidth with FP16, scale the loss with a
        GradScaler: the hook then sends scaled gradients.

    Not to be mistaken for
        gradient-underflow, which happens in an FP16 backward pass. BF16 hooks, which keep FP32's range. Gradients that
        fit FP16, as scaled ones do. Overflows that a scaler finds, which then skips the step. Weights whose gradient is
        zero in every format.
    """

    code = "AMP507"
    name = "comm-hook-underflow"
    severity = Severity.ERROR
    needs = ("calls",)
    thresholds = {
        "energy_warning": Threshold(*LIMITS["lost_energy"]),
        "energy_error": Threshold(*LIMITS["wrong_error"]),
        "flushed_share": Threshold(
            0.5, "most elements; to Adam and its kin a small gradient is worth as much as a large one"
        ),
        "steps_share": Threshold(*LIMITS["lasting_share"]),
    }
    HEALTHY = (
        Example("an FP16 hook and gradients that fit", lambda: _sent(1e-6, flushed=10)),
        Example("a BF16 hook", lambda: _sent(0.0, flushed=0, dtype_out="bfloat16")),
        Example(
            "an overflow that a scaler found",
            lambda: _sent(0.0, flushed=0, beyond=12, largest=1e6).scaler("skip", found_inf=True),
        ),
        Example("what arrived is far above FP16's edge", lambda: _arrived("fp16_compress_hook", {-9: 800, -8: 200}, 0)),
        Example("another hook, and zeros", lambda: _arrived("allreduce_hook", {}, 1000)),
    )  # fmt: skip
    SICK = (
        Example("everything is flushed on its way", lambda: _sent(1.0, flushed=1000)),
        Example("gradients overflow on their way", lambda: _sent(0.0, flushed=0, beyond=12, largest=1e6)),
        Example("nothing arrives", lambda: _arrived("fp16_compress_hook", {}, 1000)),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        sent = sent_in_fp16(run)
        hurt = [s for s in sent if self._is_hurt(s)]
        if hurt and len(hurt) >= self.threshold("steps_share") * len(sent):
            yield self._finding(run, sent, hurt)

    def _is_hurt(self, sent: Sent) -> bool:
        flushed = sent.energy >= self.threshold("energy_warning") or sent.share >= self.threshold("flushed_share")
        return sent.beyond > 0 or flushed  # fmt: skip

    def _finding(self, run: Run, sent: Sequence[Sent], hurt: Sequence[Sent]) -> Finding:
        worst = max(hurt, key=lambda s: (s.share, s.beyond))
        hook = comm_hook(run)
        name = f"`{hook.target}`" if hook is not None else "the all-reduce"
        severe = worst.beyond > 0 or worst.energy >= self.threshold("energy_error")
        if worst.beyond and not worst.flushed:
            summary = f"Gradients overflow in FP16 on their way to the other ranks ({name})."
        else:
            summary = f"Gradients are flushed to zero on their way to the other ranks: {name} sends them in FP16."
        return self.finding(
            summary,
            evidence=_evidence(worst, len(hurt), len(sent)),
            fixes=_fixes(run, worst),
            location=Location(
                tuple(f"{site} (weight_grad)" for site in worst.sites), hurt[0].step, hurt[-1].step,
                source=source_of(hook) if hook is not None else None,
            ),
            grade=Grade.MEASURED if worst.measured else Grade.ESTIMATED,
            confidence=Confidence.HIGH if worst.measured else Confidence.MEDIUM,
            severity=Severity.ERROR if severe else Severity.WARNING,
        )  # fmt: skip


def _evidence(worst: Sent, hurt: int, seen: int) -> list[Evidence]:
    grade = Grade.MEASURED if worst.measured else Grade.ESTIMATED
    whose = "the sum of squares" if worst.measured else "each weight's sum of squares, on average"
    found = [
        Evidence(
            "flushed_share", worst.share,
            f"On step {worst.step}, {percent(worst.share)} of {counted(worst.numel, 'gradient')} that were not zero "
            f"became zero in FP16; they held {percent(worst.energy)} of {whose}.", grade,
        ),
        Evidence("steps_affected", hurt, f"So it is on {hurt} of {counted(seen, 'step')} looked at."),
    ]  # fmt: skip
    if worst.largest is not None:
        least = number(FP16.min_subnormal)
        text = f"The largest gradient was {number(worst.largest)}; FP16 holds {least} to 65504."
        found.insert(1, Evidence("largest_gradient", worst.largest, text))
    if worst.beyond:
        text = f"{worst.beyond} of them were 65520 or more, and infinite after it."
        found.insert(1, Evidence("overflowed", worst.beyond, text, grade))
    if worst.sites:
        text = f"{counted(len(worst.sites), 'weight')} got no gradient at all, though one reached the module's output."
        found.append(Evidence("weights_without_gradient", len(worst.sites), text))
    return found


def _fixes(run: Run, worst: Sent) -> list[Fix]:
    hook = comm_hook(run)
    line = f"  # {source_of(hook)}" if hook is not None and source_of(hook) else ""
    compress = "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    bf16 = f"{compress}model.register_comm_hook(None, default_hooks.bf16_compress_hook){line}"
    plain = f"# leave out model.register_comm_hook(…){line}" if hook is not None else (
        "dist.all_reduce(parameter.grad)  # FP32; or send parameter.grad.to(torch.bfloat16)"
    )  # fmt: skip
    fixes = [
        Fix("Send gradients in FP32", plain, "Nothing is flushed; twice the bytes of FP16.", Grade.OBSERVED),
        Fix("Send BF16 instead of FP16", bf16, "The same bytes with FP32's range; needs NCCL 2.10 or newer."),
    ]  # fmt: skip
    if not worst.beyond:
        device = run.info.device.partition(":")[0].strip() or "cuda"
        code = f"""\
scaler = torch.amp.GradScaler("{device}")  # once, before the loop
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()"""
        fixes.append(Fix("Keep FP16, and scale the loss", code, "Scaled gradients are sent, which FP16 holds."))
    return fixes
