"""The rule adam-eps-underflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type, line_of
from ampdoctor.analysis.optimizers import class_name, optimizer_groups
from ampdoctor.analysis.storage.lost_updates import ROUND_TO_NEAREST
from ampdoctor.analysis.storage.second_moments import is_second_moment
from ampdoctor.analysis.wording import counted, number
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OptimizerRow, TensorRow

SMALLEST_GRADIENT = 2.0 ** ((FP16.flush_exponent) / 2.0)
"""Below it a gradient's square is 0 in FP16 (2^-12.5 = 1.7e-4)."""


@dataclass(frozen=True)
class _Broken:
    """One parameter that an optimizer's step broke.

    Attributes:
        update: what the step did to it.
        state: the second moment, zero where the update is not finite.
        group: a group of its optimizer whose eps is zero in FP16.
    """

    update: TensorRow
    state: TensorRow
    group: OptimizerRow


def _run(eps: float, nan: int, *, zeros: int = 40, gradient_nan: int = 0, dtype: str = "float16") -> RunBuilder:
    """A step of Adam on 100 weights, of which `nan` are NaN after it; `zeros` of the second moment are 0."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=0.7)
    run.module("body", dtypes=[dtype]).optimizer("Adam", eps=eps, dtypes=[dtype])
    rest = 100 - gradient_nan
    run.tensor("body", "weight_grad", slot="weight", dtype=dtype, exponents={-9: rest}, nan=gradient_nan)
    run.tensor("body", "update", slot="weight", dtype=dtype, exponents={-10: 100 - nan}, nan=nan)
    rest = 100 - zeros
    return run.tensor(
        "body", "optimizer_state", slot="weight.exp_avg_sq", dtype=dtype, exponents={-20: rest}, zeros=zeros
    )  # fmt: skip


def _sgd() -> RunBuilder:
    """A step of SGD with momentum that breaks 20 of 100 weights, in a run that holds Adam for another module."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=0.7)
    run.module("body", dtypes=["float16"]).optimizer("SGD", momentum=0.9, dtypes=["float16"])
    run.module("head", optimizer="optimizer1").optimizer("Adam", optimizer="optimizer1", eps=1e-8, dtypes=["float16"])
    run.tensor("body", "weight_grad", slot="weight", dtype="float16", exponents={-9: 60}, zeros=40)
    run.tensor("body", "update", slot="weight", dtype="float16", exponents={-10: 80}, posinf=20)
    return run.tensor(
        "body", "optimizer_state", slot="weight.momentum_buffer", dtype="float16", exponents={-9: 60}, zeros=40,
        square_cosine=0.6, square_ratio=1e-3,
    )  # fmt: skip


class AdamEpsUnderflow(Rule):
    """The optimizer divides by zero in FP16: weights are NaN after a step whose gradients were finite.

    What it means
        Adam divides by sqrt(v) + eps. Held in FP16, v = g² is 0 for gradients below 1.7e-4, and eps = 1e-8, torch's
        default, is 0 as well: FP16 ends at 6e-8. What is left is m / 0: infinite, or NaN where m is 0 too.

    Why it matters
        Weights are destroyed, usually in the very first step, though loss and gradients were fine. A GradScaler does
        not see it: it looks at gradients.

    How to fix
        Keep weights and optimizer state in FP32, with autocast for the speed. Where the weights must be FP16, an eps of
        1e-4 is large enough for FP16. It also slows down whatever has small gradients.

    Not to be mistaken for
        Gradients that are NaN already. BF16, which holds 1e-8. Weights that a learning rate has blown up.
    """

    code = "AMP303"
    name = "adam-eps-underflow"
    severity = Severity.ERROR
    needs = ("tensors", "optimizers")
    HEALTHY = (
        Example("an eps that FP16 holds", lambda: _run(1e-4, nan=0)),
        Example("BF16", lambda: _run(1e-8, nan=0, zeros=0, dtype="bfloat16")),
        Example("the gradient was NaN", lambda: _run(1e-8, nan=40, gradient_nan=40)),
        Example("weights overflowed", lambda: _run(1e-8, nan=10, zeros=0)),
        Example("SGD with momentum, which divides by nothing", _sgd),
    )
    SICK = (
        Example("Adam on FP16 weights", lambda: _run(1e-8, nan=40)),
        Example("an eps of 1e-10", lambda: _run(1e-10, nan=100, zeros=100)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        step, broken = _first(run)
        if broken:
            yield self._finding(run, step, broken)

    def _finding(self, run: Run, step: int, broken: Sequence[_Broken]) -> Finding:
        group = broken[0].group
        lost = sum(b.update.nonfinite for b in broken)
        every = sum(b.update.numel for b in broken)
        zeros = sum(b.state.zeros for b in broken)
        state = broken[0].state.slot.rpartition(".")[2]
        sites = tuple(f"{b.update.site} (update)" for b in broken)
        return self.finding(
            f"{class_name(group.type)} breaks FP16 weights: after step {step} {counted(lost, 'weight')} are NaN or "
            "infinite, though every gradient was finite.",
            evidence=[
                Evidence("broken_weights", lost, f"{lost} of {every} weights of {counted(len(broken), 'tensor')} are "
                         f"NaN or infinite after step {step}; their gradients were all finite."),
                Evidence("zero_state", zeros, f"The second moment `{state}` is in FP16, and 0 in {zeros} elements: the "
                         f"square of a gradient below {number(SMALLEST_GRADIENT)} is 0 there."),
                _eps(group.eps or 0.0),
            ],
            fixes=_fixes(run, group),
            location=Location(sites, step, step, source=line_of(run, "optimizer_step", "scaler_step")),
        )  # fmt: skip


def _eps(eps: float) -> Evidence:
    text = f"eps is {eps:g}, which is 0 in FP16 too (it ends at {number(FP16.min_subnormal)}): the update divides by 0."
    return Evidence("eps", eps, text)


def _first(run: Run) -> tuple[int, list[_Broken]]:
    """Return the first step that left a weight NaN or infinite though all gradients were finite, and which."""
    updates = [r for r in run.tensors("update") if r.nonfinite]
    if not updates:
        return 0, []
    step = updates[0].step
    rows = [r for r in run.tensors("weight_grad", "optimizer_state") if r.step == step]
    if any(r.nonfinite for r in rows if r.role == "weight_grad"):
        return step, []
    states = [r for r in rows if r.role == "optimizer_state" and r.dtype == "float16"]
    first: dict[tuple[str, str], TensorRow] = {}
    for row in run.tensors("optimizer_state", dtypes=("float16",)):
        first.setdefault((row.module, row.slot), row)
    squares = [s for s in states if is_second_moment(first[s.module, s.slot])]
    found = ((u, _divisor(u, squares), _group(run, u)) for u in updates if u.step == step)
    return step, [_Broken(u, state, group) for u, state, group in found if state is not None and group is not None]


def _divisor(update: TensorRow, squares: Sequence[TensorRow]) -> TensorRow | None:
    """Return the second moment that is zero in at least as many elements as the update is not finite in."""
    own = [s for s in squares if s.module == update.module and s.slot.rpartition(".")[0] == update.slot]
    zero = [s for s in own if not s.nonfinite and s.zeros >= update.nonfinite]
    return max(zero, key=lambda s: (s.square_cosine or 0.0, s.zeros), default=None)


def _group(run: Run, update: TensorRow) -> OptimizerRow | None:
    """Return the group of the parameter's own optimizer that holds its dtype and has an eps that FP16 makes zero."""
    groups = [g for g in optimizer_groups(run, update.module) if g.eps is not None and update.dtype in g.dtypes]
    return next((g for g in groups if g.eps is not None and g.eps <= 2.0**FP16.flush_exponent), None)


def _fixes(run: Run, group: OptimizerRow) -> list[Fix]:
    known = group.type in ROUND_TO_NEAREST
    name = f"torch.optim.{group.type}" if known else class_name(group.type)
    code = f"""\
model = model.float()  # instead of .half(); before the optimizer is made
optimizer = {name}(model.parameters(), …)
scaler = torch.amp.GradScaler("{device_type(run)}")
with torch.autocast("{device_type(run)}", dtype=torch.float16):  # around forward and loss
    ..."""
    return [
        Fix(
            "Keep weights and optimizer state in FP32, and use autocast",
            code,
            "FP32 holds g² and eps; the matmuls stay in FP16.",
        ),
        Fix(
            "Or raise eps to what FP16 holds",
            f"optimizer = {name}(model.parameters(), eps=1e-4, …)",
            "The division is finite. Weights whose gradients are below 1e-4 learn more slowly.",
        ),
    ]  # fmt: skip
