"""The rule master-weights-missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ampdoctor.analysis.advice.cures import device_type, optimizer_type
from ampdoctor.analysis.storage import lost_updates as lost
from ampdoctor.analysis.wording import counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.storage.lost_updates import LostStep
    from ampdoctor.trace.run import Run


def _run(unchanged: int, *, autocast: str | None = "bfloat16", moved: int = 0) -> RunBuilder:
    """Four steps of a BF16 layer of 1000 weights, of which `unchanged` do not take their update."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(4):
        run.step(loss=0.3)
        if step == 0:
            run.module("body", dtypes=["bfloat16"], parameters=1000, trainable=1000)
            run.optimizer("AdamW", lr=1e-5, dtypes=["bfloat16"])
        run.tensor("body", "activation", dtype="bfloat16", exponents={-1: 64}, autocast=autocast)
        run.tensor("body", "weight", slot="weight", dtype="bfloat16", exponents={-3: 1000})
        run.tensor(
            "body", "update", slot="weight", dtype="bfloat16", exponents={-17: 1000 - unchanged}, zeros=unchanged,
            expected_to_move=1000, unchanged=unchanged, energy_unchanged=unchanged / 1000, small_updates=unchanged,
            small_updates_moved=moved,
        )  # fmt: skip
    return run


def _frozen_base() -> RunBuilder:
    """A frozen BF16 base with an FP32 adapter beside it, under autocast."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=0.3)
    run.module("base", dtypes=["bfloat16"], parameters=1000, trainable=0, optimizer=None)
    run.module("adapter", dtypes=["float32"]).optimizer("AdamW")
    run.tensor("base", "activation", dtype="bfloat16", exponents={-1: 64}, autocast="bfloat16")
    return run.tensor("adapter", "update", slot="weight", exponents={-17: 100})


class MasterWeightsMissing(Rule):
    """The model was cast to half precision although autocast is used: there are no FP32 weights to train.

    What it means
        Autocast makes half copies of FP32 weights for the matmuls, and the optimizer keeps changing the FP32 ones. Here
        `.half()`, `.bfloat16()` or `torch_dtype=` has cast the trained weights themselves. The copies are all there is,
        and the optimizer's state is in half as well.

    Why it matters
        BF16 takes no update below a 512th of the weight or so, FP16 none below a 4096th. At usual learning rates most
        updates round away, so that the model barely learns, without an error and with autocast on.

    How to fix
        Leave out the cast, or load the trained weights in FP32: autocast does the rest, at the same speed.

    Not to be mistaken for
        A frozen half-precision base with FP32 adapters, which is fine. Half weights without autocast (lost-updates).
        Half weights at learning rates that move them, and optimizers that round stochastically.
    """

    code = "AMP302"
    name = "master-weights-missing"
    severity = Severity.ERROR
    needs = ("steps", "tensors", "modules")
    after = ("unscale-fp16-gradients",)
    thresholds = {
        "energy_warning": Threshold(lost.ENERGY_WARNING, lost.ENERGY_WARNING_SOURCE),
        "energy_error": Threshold(lost.ENERGY_ERROR, lost.ENERGY_ERROR_SOURCE),
        "steps_share": Threshold(lost.STEPS_SHARE, lost.STEPS_SHARE_SOURCE),
        "small_moved": Threshold(lost.SMALL_MOVED, lost.SMALL_MOVED_SOURCE),
    }
    HEALTHY = (
        Example("a frozen half base with FP32 adapters", _frozen_base),
        Example("half weights without autocast", lambda: _run(900, autocast=None)),
        Example("half weights that move", lambda: _run(20)),
        Example("stochastic rounding", lambda: _run(900, moved=50)),
    )
    SICK = (
        Example("model.bfloat16() and autocast", lambda: _run(940)),
        Example("two fifths of the updates are lost", lambda: _run(400)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        autocast = _autocast(run)
        steps = lost.lost_steps(run)
        if autocast is None or not steps:
            return
        if lost.keeps_what_rounding_takes(steps, self.threshold("small_moved")):
            return
        hurt = [s for s in steps if s.energy >= self.threshold("energy_warning")]
        if hurt and len(hurt) >= self.threshold("steps_share") * len(steps):
            yield self._finding(run, autocast, hurt)

    def _finding(self, run: Run, autocast: str, hurt: list[LostStep]) -> Finding:
        last = hurt[-1]
        title = title_of_dtype(last.rows[0].dtype)
        told = lost.told_from_keeping(run)
        severe = Severity.ERROR if last.energy >= self.threshold("energy_error") else Severity.WARNING
        sites = sorted({r.site for r in last.rows})
        meant = counted(last.expected, "weight")
        return self.finding(
            f"Autocast is on, but the trained weights are themselves in {title}: {percent(last.share)} of their "
            "updates round away.",
            evidence=[
                _weights(run, title),
                Evidence("autocast", autocast, f"Autocast to {title_of_dtype(autocast)} is on in the forward."),
                Evidence(
                    "unchanged_share",
                    last.share,
                    f"{percent(last.share)} of the {meant} that step {last.step} meant to change kept their value.",
                ),
                Evidence("lost_update_energy", last.energy, lost.energy_text(last)),
                *lost.spacing(run, last),
            ],
            fixes=[_fix(run)],
            location=Location(tuple(f"{s} (weight)" for s in sites), hurt[0].step, last.step),
            confidence=Confidence.HIGH if told else Confidence.LOW,
            severity=severe if told else Severity.NOTE,
        )  # fmt: skip


def _autocast(run: Run) -> str | None:
    """Return the autocast dtype in force where the training's activations were made."""
    table = run.table("tensors")
    rows = table.filter(
        pc.and_(pc.equal(table["role"], "activation"), pc.and_(table["grad_enabled"], pc.is_valid(table["autocast"])))
    )  # fmt: skip
    return str(rows["autocast"][0].as_py()) if rows.num_rows else None


def _weights(run: Run, title: str) -> Evidence:
    trained = sum(m.trainable for m in run.modules)
    half = sum(m.trainable for m in run.modules if HALF_DTYPES & set(m.dtypes))
    share = half / trained if trained else 1.0
    text = f"{percent(share)} of the trained weights of the model are kept in {title}."
    return Evidence("half_weights_share", share, text)


def _fix(run: Run) -> Fix:
    kind = optimizer_type(run) or "AdamW"
    code = f"""\
model = model.float()  # before the optimizer is made; instead of .half(), .bfloat16() or torch_dtype=
optimizer = torch.optim.{kind}(model.parameters(), …)
with torch.autocast("{device_type(run)}", dtype=torch.bfloat16):  # as it is
    ..."""
    expected = "The optimizer changes FP32 weights, which take updates down to 2^-24 of themselves, and "
    return Fix("Keep the trained weights in FP32", code, expected + "autocast casts them for each forward.")
