"""The rule autocast-stale-weight-cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type, line_of
from ampdoctor.analysis.calls.autocast_blocks import autocast_blocks
from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.calls.autocast_blocks import AutocastBlock
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(*stale: int, losses: float = 1.0) -> RunBuilder:
    """A block that is never left, around a step for each number of stale casts."""
    run = RunBuilder()
    for index, count in enumerate(stale):
        run.step(loss=1.0 + losses * index)
        if index == 0:
            run.call(
                "autocast_enter", target="autocast0", device_type="cpu", dtype="bfloat16", asked=True,
                autocast="bfloat16", cache_enabled=True, depth=0, file="train.py", line=12,
            )  # fmt: skip
        run.call("backward", stale_casts=count, file="train.py", line=20)
        run.call("optimizer_step", target="optimizer0")
    return run


class AutocastStaleWeightCache(Rule):
    """The model computes with half copies of weights that are older than the optimizer's last step.

    What it means
        Autocast makes a half copy of each FP32 weight once and keeps it until the outermost block is left. With one
        block around the whole loop the copy of the first step serves all others: the optimizer moves the weights, and
        the forward pass never sees it.

    Why it matters
        Gradients look healthy and the weights move, but the loss does not fall; on the same batch it is the same to
        the last digit, step after step. Nothing is learned.

    How to fix
        Open the block anew in each iteration, around the forward pass and the loss only. Or keep no copies:
        `cache_enabled=False`.

    Not to be mistaken for
        One block around the micro-batches of one step: no weight changes in between. A block around the loop with
        `cache_enabled=False`. Steps that the scaler skipped, which change no weight either.
    """

    code = "AMP502"
    name = "autocast-stale-weight-cache"
    severity = Severity.ERROR
    needs = ("calls.stale_casts",)
    HEALTHY = (
        Example("copies made anew in each step", lambda: _run(0, 0, 0)),
        Example("one step, a block around it", lambda: _run(0)),
    )
    SICK = (
        Example("one block around the loop, one batch", lambda: _run(0, 4, 4, losses=0.0)),
        Example("one block around the loop, many batches", lambda: _run(0, 4, 4)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        looked = [c for c in calls_named(run, "backward") if c.stale_casts is not None]
        stale = [c for c in looked if c.stale_casts]
        if not stale:
            return
        block = next((b for b in autocast_blocks(run) if b.in_force and b.holds(stale[0])), None)
        source = block.source if block is not None else None
        copies = max(c.stale_casts or 0 for c in stale)
        step, of = (stale[0].step, counted(len(looked), "examined backward pass", "examined backward passes"))
        what = "one autocast block is open around several optimizer steps"
        yield self.finding(
            f"The forward pass uses old weights: {what if block else 'half copies are kept'}, and step {step} still "
            "computes with the half copies of steps before.",
            evidence=[
                *_block_evidence(block, run),
                Evidence(
                    "stale_weight_copies", copies,
                    f"The loss of step {step} comes from {counted(copies, 'half copy', 'half copies')} of weights that "
                    "the optimizer has changed since.",
                ),
                Evidence(
                    "stale_passes", len(stale),
                    f"So it is in {len(stale)} of {of}.",
                ),
                *_constant_loss(run, stale),
            ],
            fixes=_fixes(run, block),
            location=Location((), stale[0].step, stale[-1].step, source=source or source_of(stale[0])),
        )  # fmt: skip


def _block_evidence(block: AutocastBlock | None, run: Run) -> list[Evidence]:
    if block is None:
        return []
    until = f"left in step {block.left.step}" if block.left is not None else "not left any more"
    where = f" at {block.source}" if block.source else ""
    text = f"The block entered{where} in step {block.enter.step} is {until}; the run has {len(run.steps)} steps."
    return [Evidence("block_entered_in_step", block.enter.step, text)]


def _constant_loss(run: Run, stale: Sequence[CallRow]) -> list[Evidence]:
    """The loss of the steps from the first stale one on, where it is one and the same."""
    losses = [s.loss for s in run.steps if s.step >= stale[0].step and s.loss is not None]
    if len(losses) < 2 or len(set(losses)) > 1:
        return []
    text = f"The loss is exactly {losses[0]:.8g} on all {len(losses)} steps from then on, though the weights move."
    return [Evidence("constant_loss", losses[0], text)]


def _fixes(run: Run, block: AutocastBlock | None) -> list[Fix]:
    dtype = block.enter.dtype if block is not None else "bfloat16"
    device = (block.enter.device_type if block is not None else None) or device_type(run)
    was = f"the block of {block.source} goes" if block is not None and block.source else None
    made = f'torch.autocast("{device}", dtype=torch.{dtype}'
    anew = f"""\
for x, y in batches:{comment(was)}
    with {made}):
        loss = criterion(model(x), y)
    loss.backward(){comment("outside the block", line_of(run, "backward"))}
    optimizer.step()"""
    kept = f"with {made}, cache_enabled=False):{comment(block.source if block is not None else None)}"
    return [
        Fix("Enter autocast in each iteration", anew, "Each forward pass casts the weights of its own step."),
        Fix("Keep no half copies", kept, "Weights are cast at each use, which costs a little time."),
    ]  # fmt: skip
