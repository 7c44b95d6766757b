"""The rule checkpoint-autocast-lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import comment, device_type, line_of
from ampdoctor.analysis.calls.autocast_blocks import autocast_line
from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, TensorRow


def _run(again: str = "float32", *, in_backward: bool = True) -> RunBuilder:
    """A block that runs in half without gradients, and again with them in `again`."""
    run = RunBuilder().step(loss=1.0)
    half: dict[str, Any] = {"dtype": "float16", "autocast": "float16", "exponents": {0: 10}}
    run.tensor("block.0", "activation", grad_enabled=False, **half)
    columns: dict[str, Any] = {"dtype": again, "autocast": None if again == "float32" else again}
    if not in_backward:
        run.tensor("block.0", "activation", exponents={0: 10}, **columns)
    run.call("backward", file="train.py", line=40)
    if in_backward:
        run.tensor("block.0", "activation", exponents={0: 10}, micro_batch=0, **columns)
    return run


@dataclass(frozen=True)
class _Recomputed:
    """An output that the backward pass has made again, in another dtype than the forward pass."""

    first: TensorRow
    again: TensorRow
    backward: CallRow


class CheckpointAutocastLost(Rule):
    """A hand-written checkpoint recomputes its block outside autocast, in another dtype than the forward pass.

    What it means
        Activation checkpointing runs a block without keeping its activations, and runs it again in the backward pass.
        Autocast is over by then: unless the checkpoint restores it, the second run is in FP32. The gradients are those
        of activations that the loss was not computed from.

    Why it matters
        The recomputed activations take twice the memory and the time of the half ones, which is what checkpointing was
        to save; and forward and backward disagree by the rounding of a whole block.

    How to fix
        Use `torch.utils.checkpoint`, which restores autocast and the random state. In an autograd.Function of one's
        own, `torch.amp.custom_fwd` and `custom_bwd` do the same for autocast.

    Not to be mistaken for
        `torch.utils.checkpoint`, reentrant or not: its recomputation is in the same dtype. An evaluation in another
        precision, which no backward pass runs.
    """

    code = "AMP506"
    name = "checkpoint-autocast-lost"
    severity = Severity.WARNING
    needs = ("calls", "tensors")
    HEALTHY = (
        Example("recomputed in the same dtype", lambda: _run("float16")),
        Example("an evaluation in half, before training", lambda: _run(in_backward=False)),
    )
    SICK = (Example("recomputed in FP32", _run), Example("recomputed in BF16", lambda: _run("bfloat16")))

    def check(self, run: Run) -> Iterator[Finding]:
        found = list(_recomputed(run))
        if not found:
            return
        case = found[0]
        modules = list(dict.fromkeys(c.again.module for c in found))
        before, after = title_of_dtype(case.first.dtype), title_of_dtype(case.again.dtype)
        line = source_of(case.backward)
        around, steps = case.again.autocast, len({c.again.step for c in found})
        evidence = [
            Evidence(
                "forward_dtype", case.first.dtype,
                f"The forward pass ran `{case.again.module or 'the model'}` without gradients and returned "
                f"`{case.first.dtype}`.",
            ),
            Evidence(
                "recomputed_dtype", case.again.dtype,
                f"The backward pass{f' of {line}' if line else ''} ran it again, with autocast "
                f"{f'to `{around}`' if around else 'off'}, and got `{case.again.dtype}`.",
            ),
            Evidence(
                "recomputed_modules", len(modules),
                f"So it is with {counted(len(modules), 'module')} on {counted(steps, 'examined step')}.",
            ),
        ]  # fmt: skip
        sites = tuple(dict.fromkeys(f"{c.again.site} (activation)" for c in found))
        yield self.finding(
            f"A checkpoint loses autocast: the forward pass is in {before}, and its recomputation in the backward pass "
            f"in {after}.",
            evidence=evidence,
            fixes=_fixes(run),
            location=Location(sites[:5], case.again.step, found[-1].again.step, source=line),
        )


def _recomputed(run: Run) -> Iterator[_Recomputed]:
    """Yield the outputs that a backward pass has made again in a dtype in which the forward pass made none of them."""
    passes = {(c.step, c.micro_batch): c for c in calls_named(run, "backward")}
    without: dict[tuple[int, str, str], list[TensorRow]] = {}
    for row in run.tensors("activation"):
        if not row.slot.startswith("out"):
            continue
        key = (row.step, row.module, row.slot)
        if not row.grad_enabled:
            without.setdefault(key, []).append(row)
            continue
        backward = passes.get((row.step, row.micro_batch))
        forward = [r for r in without.get(key, []) if r.shape == row.shape]
        if backward is None or row.seq < backward.seq or not forward:
            continue
        dtypes = {r.dtype for r in forward}
        if row.dtype not in dtypes and HALF_DTYPES & {*dtypes, row.dtype}:
            yield _Recomputed(forward[-1], row, backward)


def _fixes(run: Run) -> list[Fix]:
    backward = comment("the recomputation runs in here", line_of(run, "backward"))
    ready = f"""\
from torch.utils.checkpoint import checkpoint

with torch.autocast(...):{comment(autocast_line(run))}
    h = checkpoint(block, x, use_reentrant=False)  # instead of the hand-written function
loss.backward(){backward}"""
    device = device_type(run)
    own = f"""\
class Checkpoint(torch.autograd.Function):  # your own
    @staticmethod
    @torch.amp.custom_fwd(device_type="{device}")
    def forward(ctx, ...): ...

    @staticmethod
    @torch.amp.custom_bwd(device_type="{device}")
    def backward(ctx, ...): ..."""
    return [
        Fix("Use torch.utils.checkpoint", ready, "It restores autocast and the random state for the recomputation."),
        Fix("Restore autocast in a function of your own", own, "backward() runs under the autocast of its forward()."),
    ]  # fmt: skip
