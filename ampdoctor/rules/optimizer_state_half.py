"""The rule optimizer-state-half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import recorded_dtypes
from ampdoctor.analysis.optimizers import class_name, optimizer_groups
from ampdoctor.analysis.storage.lost_updates import ROUND_TO_NEAREST
from ampdoctor.analysis.storage.second_moments import second_moments
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.storage.second_moments import SecondMoment
    from ampdoctor.trace.run import Run


def _run(
    *, beta2: float = 0.999, later: float = 1e-4, held: int = 100, dtype: str = "bfloat16", steps: int = 400
) -> RunBuilder:
    """Steps of an optimizer whose g² falls to `later` after step 8; `held` of 100 elements never change."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    exact = rms = 1.0 - beta2
    for step in range(steps):
        run.step(loss=0.3)
        if step == 0:
            run.module("body", dtypes=[dtype]).optimizer("AdamW", betas=[0.9, beta2])
        square = 1.0 if step < 9 else later
        exact = exact if step == 0 else beta2 * exact + (1.0 - beta2) * square
        rms = rms if held and step > 8 else exact
        if step in (0, 1, 2, 4, 8, 16, 32) or step % 50 == 0:
            run.tensor(
                "body", "optimizer_state", slot="weight.exp_avg_sq", dtype=dtype, exponents={-10: 100}, rms=rms,
                expected_to_move=100, unchanged=held if step > 8 else 0, square_cosine=1.0, square_ratio=square / rms,
            )  # fmt: skip
    return run


class OptimizerStateHalf(Rule):
    """The optimizer's second moment is held in half precision and can't come down: 0.999 v rounds back to v.

    What it means
        Each step should take a thousandth of v away (beta2 = 0.999) and add as much of the new g². In BF16 the next
        number below v is a 128th to a 256th of v away, so that a thousandth rounds to nothing. From beta2 = 0.9961 on
        some values of v stick in BF16, and from 0.9981 on all; in FP16 it is 0.9996 and 0.9998. Optimizers inherit
        the dtype of the weights, or were written or set up to keep half state.

    Why it matters
        v stays at the largest it has ever been: the first steps, a bad batch, a warm-up spike. Updates are divided by
        its root, so they stay too small for the rest of the run, which plateaus late and without an error.

    How to fix
        Keep the optimizer's state in FP32, with FP32 weights under autocast or an optimizer that does so by itself. A
        beta2 that BF16 can hold (0.99 or below) is a makeshift.

    Not to be mistaken for
        8-bit optimizers, whose state has its own scaling. A beta2 that decays in BF16. A second moment that is no
        larger than it should be.
    """

    code = "AMP304"
    name = "optimizer-state-half"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = ("master-weights-missing",)
    thresholds = {
        "excess": Threshold(
            1.0 / 0.9**2,
            "updates are divided by the root of it: as if on a learning rate 10 % lower, and it never gets better",
        ),
        "held": Threshold(0.5, "most elements, on most of the steps: what is rounded away is the rule"),
    }
    HEALTHY = (
        Example("beta2 = 0.95 decays in BF16", lambda: _run(beta2=0.95, held=0)),
        Example("FP16 holds 0.999", lambda: _run(dtype="float16", held=0)),
        Example("stochastic rounding lets it move", lambda: _run(held=0)),
        Example("gradients as large as ever", lambda: _run(later=1.0)),
        Example("FP32 state", lambda: _run(dtype="float32", held=0)),
    )
    SICK = (
        Example("Adam's state in BF16 after a spike", _run),
        Example("beta2 = 0.9999 in FP16", lambda: _run(beta2=0.9999, dtype="float16", steps=4000)),
    )

    def lacks(self, run: Run) -> list[str]:
        half = HALF_DTYPES & recorded_dtypes(run, "optimizer_state")
        return run.missing((*self.needs, *(("tensors.square_ratio",) if half else ())))

    def check(self, run: Run) -> Iterator[Finding]:
        stuck = [m for m in second_moments(run) if not m.can_decay and m.held >= self.threshold("held")]
        high = [m for m in stuck if m.excess >= self.threshold("excess")]
        every = sum(m.rows[-1].numel for m in second_moments(run))
        # Half of the elements, as in lost-updates: one odd tensor is no fault of the run.
        if high and 2 * sum(m.rows[-1].numel for m in high) >= every:
            yield self._finding(run, high)

    def _finding(self, run: Run, high: Sequence[SecondMoment]) -> Finding:
        high = sorted(high, key=lambda m: -m.rows[-1].numel)
        worst, step = high[0], max(m.rows[-1].step for m in high)
        row, title = worst.rows[-1], title_of_dtype(worst.rows[0].dtype)
        group = next(iter(optimizer_groups(run, row.module)), None)
        kind = class_name(group.type) if group is not None else "The optimizer"
        first = min(m.since.step for m in high)
        place = getattr(format_of_dtype(row.dtype), "eps", 0.0) / 4.0
        return self.finding(
            f"{kind} keeps its second moment in {title}, where it can't decay: updates stay too small.",
            evidence=[
                Evidence("state_dtype", row.dtype, f"`{row.site}` is held in {title}, as is that of "
                         f"{counted(len(high), 'parameter')} in all."),
                Evidence("held_share", worst.held, f"{percent(worst.held)} of its elements kept their value in a step, "
                         "though their gradient said otherwise."),
                Evidence("decay", 1.0 - worst.beta2, f"A step is meant to take {number(1.0 - worst.beta2)} of it away; "
                         f"{title} takes no change below {number(place)} to {number(2.0 * place)} of a value."),
                Evidence("excess", worst.excess, f"Since step {worst.since.step} it should have come down: on step "
                         f"{step} it is {worst.excess:.3g} times what FP32 would hold, and updates "
                         f"{worst.excess**0.5:.3g} times too small.", Grade.ESTIMATED),
            ],
            fixes=_fixes(kind, known=group is not None and group.type in ROUND_TO_NEAREST),
            location=Location(tuple(f"{m.rows[0].site} (optimizer_state)" for m in high), first, step),
            confidence=Confidence.HIGH,
        )  # fmt: skip


def _fixes(kind: str, *, known: bool) -> list[Fix]:
    code = "state[name] = torch.zeros_like(p, dtype=torch.float32)  # where the optimizer makes its state"
    if known:
        code = f"""\
model = model.float()  # the state takes the dtype of the weights; autocast keeps the speed
optimizer = torch.optim.{kind}(model.parameters(), …)"""
    return [
        Fix("Keep the optimizer's state in FP32", code, "FP32 takes changes down to 2^-24 of a value."),
        Fix("Or choose a beta2 that BF16 can hold", f"optimizer = {kind}(…, betas=(0.9, 0.99))",
            "A hundredth of a value is more than half a last place of BF16, so it decays, if coarsely."),
    ]  # fmt: skip
