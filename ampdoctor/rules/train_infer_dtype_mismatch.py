"""The rule train-infer-dtype-mismatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.calls.autocast_blocks import autocast_line
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.wording import counted, number
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import FP16, HALF_DTYPES, format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, TensorRow


def _run(
    before: str = "bfloat16", after: str = "float32", ratio_error: float | None = 0.08,
    module: str = "policy",
) -> RunBuilder:  # fmt: skip
    """A policy that runs without gradients in `before`, with them in `after`."""
    run = RunBuilder().step(loss=0.0)
    for name, grad, dtype in ((module, False, before), ("policy", True, after)):
        autocast = dtype if dtype in HALF_DTYPES else None
        columns: dict[str, Any] = {"grad_enabled": grad, "dtype": dtype, "autocast": autocast}
        run.module(name).tensor(name, "activation", exponents={0: 100}, **columns)
    return run.call("backward", ratio_error=ratio_error, file="ppo.py", line=60)


@dataclass(frozen=True)
class _Mismatch:
    """One step on which old and new log-probabilities come from different precisions."""

    backward: CallRow
    modules: tuple[str, ...]
    old: str
    new: str


class TrainInferDtypeMismatch(Rule):
    """Old and new log-probabilities are computed at two precisions, so that their ratio is not 1 before any update.

    What it means
        PPO and its kin weigh each action by exp(new - old): how much likelier it is now than when it was taken. Before
        the first update both come from the same weights, and the ratio is 1. Here the model ran without gradients in
        one precision and with them in another: the ratio holds the difference of two roundings.

    Why it matters
        The ratio is what the loss is made of. A few percent of noise use up the clip range, look like a policy that has
        moved, and stop updates (or let bad ones through) before anything was learned.

    How to fix
        Compute both in the same autocast context, and the log-softmax of both from FP32 logits. Or compute the old
        ones anew with the training's own forward pass, and not while sampling.

    Not to be mistaken for
        Later epochs over the same samples: the ratio moves because the policy does. An evaluation, or a teacher, in
        another precision: its results do not meet those of training in a ratio.
    """

    code = "AMP215"
    name = "train-infer-dtype-mismatch"
    severity = Severity.WARNING
    needs = ("calls", "tensors")
    thresholds = {
        "ratio_error": Threshold(
            FP16.eps,
            "one rounding to FP16 of a log-probability between 1 and 2 moves it by so much, one to FP32 far less",
        )
    }
    HEALTHY = (
        Example("the same precision", lambda: _run("bfloat16", "bfloat16")),
        Example("the same log-probabilities", lambda: _run(ratio_error=0.0)),
        Example("an evaluation in FP32", lambda: _run("float32", "bfloat16", ratio_error=None)),
        Example("a reference model in BF16", lambda: _run("bfloat16", "float32", module="frozen")),
    )
    SICK = (
        Example("sampled in BF16, trained in FP32", _run),
        Example("sampled in FP32, trained in FP16", lambda: _run("float32", "float16")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        case = self._mismatch(run)
        if case is None:
            return
        error, first = case.backward.ratio_error or 0.0, case.modules[0] or "the model"
        old, new = title_of_dtype(case.old), title_of_dtype(case.new)
        modules = counted(len(case.modules), "module")
        evidence = [
            Evidence(
                "ratio_error", error,
                f"In step {case.backward.step}, the first with one, the ratio is off from 1 by up to {number(error)}.",
            ),
            Evidence("old_dtype", case.old, f"Without gradients `{first}` had returned `{case.old}`."),
            Evidence("new_dtype", case.new, f"With gradients it returned `{case.new}`."),
            Evidence("modules_that_differ", len(case.modules), f"So it is with {modules} that ran both ways."),
        ]  # fmt: skip
        yield self.finding(
            f"Log-probabilities are computed at two precisions, {old} for the old and {new} for the new: their ratio "
            f"is off by up to {number(error)} before any update.",
            evidence=evidence,
            fixes=_fixes(run, case),
            location=Location(
                tuple(f"{m or 'model'} (activation)" for m in case.modules[:5]),
                case.backward.step,
                case.backward.step,
                source=source_of(case.backward),
            ),
        )

    def _mismatch(self, run: Run) -> _Mismatch | None:
        """Look at the first ratio of the run alone: later ones are off because the policy has moved."""
        call = next((c for c in run.calls if c.ratio_error is not None), None)
        if call is None or (call.ratio_error or 0.0) <= self.threshold("ratio_error"):
            return None
        differing = _differing(run.tensors("activation"), call)
        if not differing:
            return None
        return _Mismatch(call, tuple(differing), *next(iter(differing.values())))


def _differing(rows: Sequence[TensorRow], backward: CallRow) -> dict[str, tuple[str, str]]:
    """Return the modules whose outputs had no dtype in common without and with gradients, and one dtype of each."""
    without: dict[str, list[str]] = {}
    with_gradients: dict[str, list[str]] = {}
    for row in rows:
        floating = row.slot.startswith("out") and format_of_dtype(row.dtype) is not None
        if not floating or (row.step, row.seq) > (backward.step, backward.seq):
            continue
        if not row.grad_enabled:
            without.setdefault(row.module, []).append(row.dtype)
        elif row.step == backward.step:
            with_gradients.setdefault(row.module, []).append(row.dtype)
    return {
        module: (old[0], new[0])
        for module, new in with_gradients.items()
        if (old := without.get(module)) and not set(old) & set(new) and HALF_DTYPES & {*old, *new}
    }


def _fixes(run: Run, case: _Mismatch) -> list[Fix]:
    half = case.old if case.old in HALF_DTYPES else case.new
    code = f"""\
amp = torch.autocast("{device_type(run)}", dtype=torch.{half}){comment("one context for both", autocast_line(run))}

with torch.no_grad(), amp:
    old = policy(states)
old = old.float().log_softmax(-1)  # while sampling
...
with amp:
    new = policy(states)
new = new.float().log_softmax(-1)  # in the update
ratio = (new - old).exp(){comment(source_of(case.backward))}"""
    anew = """\
with torch.no_grad():
    old = log_probs(policy, states, actions)  # the update's own function and precision, before its first step"""
    return [
        Fix("Use one context for both, and FP32 logits", code, "The ratio is 1 until the policy moves."),
        Fix("Compute the old ones anew, as the update does", anew, "Sampling may then stay in any precision."),
    ]  # fmt: skip
