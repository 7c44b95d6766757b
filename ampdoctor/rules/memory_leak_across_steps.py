"""The rule memory-leak-across-steps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, line_of
from ampdoctor.analysis.wording import bytes_text, counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow


def _run(held: Sequence[int], allocated: Sequence[int] | None = None) -> RunBuilder:
    run = RunBuilder()
    for number, graphs in enumerate(held):
        run.step(loss=2.0, held_graphs=graphs, allocated_bytes=allocated and allocated[number])
    return run


_ROOM = 2**30


class MemoryLeakAcrossSteps(Rule):
    """Memory grows from step to step: something holds on to the graphs of earlier steps.

    What it means
        A loss that still has its graph keeps every node of it alive, and before its backward pass all activations
        too. A list of losses, a running sum (`total += loss`) or a metric made of tensors that require gradients holds
        one more such graph with every step.

    Why it matters
        The run dies of out-of-memory after hours, at a step at which nothing is wrong. Half precision is blamed for
        it, because it came with the smaller memory that was hoped for.

    How to fix
        Keep numbers, not tensors: `total += loss.item()`, or `loss.detach()` where a wait for the device costs too
        much.

    Not to be mistaken for
        The loss of the step before, which lives until the name is bound again. A window of the last few losses. Memory
        that grows in the first steps, while the optimizer makes its state and the allocator its pool.
    """

    code = "AMP603"
    name = "memory-leak-across-steps"
    severity = Severity.WARNING
    needs = ("steps",)
    thresholds = {
        "graphs": Threshold(20, "windows of losses that people print or average are shorter, and end"),
        "held_share": Threshold(
            0.9, "of the steps in the run's second half: a graph is held per step, not now and then"
        ),
        "warm_up_steps": Threshold(10, "by then optimizer state and the allocator's pool have been made"),
        "growth_share": Threshold(
            0.1, "of the memory after warm-up; a caching allocator's own ups and downs are smaller"
        ),
    }
    HEALTHY = (
        Example("the loss of the step before", lambda: _run([1] * 60)),
        Example("a window of ten losses", lambda: _run([*range(10), *[10] * 50])),
        Example("memory that is steady after warm-up", lambda: _run([0] * 60, [_ROOM] * 60)),
        Example("batches of different lengths", lambda: _run([0] * 60, [_ROOM + n % 7 * 2**28 for n in range(60)])),
    )
    SICK = (
        Example("a list of losses", lambda: _run(range(60))),
        Example(
            "allocated memory that rises all the way", lambda: _run([0] * 60, [_ROOM + n * 2**24 for n in range(60)])
        ),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        held = [s for s in run.steps if s.held_graphs is not None]
        allocated = [s for s in run.steps if s.allocated_bytes is not None]
        if held and self._holds(held):
            yield self._finding(run, held, allocated)
        elif self._rises(allocated):
            yield self._unexplained(allocated)

    def _holds(self, steps: Sequence[StepRow]) -> bool:
        """Whether, in the run's second half, nearly every step leaves its graph behind."""
        middle, last = steps[len(steps) // 2], steps[-1]
        grown = (last.held_graphs or 0) - (middle.held_graphs or 0)
        passed = last.step - middle.step
        enough = (last.held_graphs or 0) >= self.threshold("graphs")
        return enough and grown >= self.threshold("held_share") * passed > 0

    def _rises(self, steps: Sequence[StepRow]) -> bool:
        """Whether each quarter of the run holds more memory than the one before, and notably more in all."""
        quarters = self._quarters(steps)
        if not quarters:
            return False
        rising = all(b > a for a, b in pairwise(quarters))
        return rising and quarters[-1] - quarters[0] >= self.threshold("growth_share") * quarters[0]

    def _quarters(self, steps: Sequence[StepRow]) -> list[float]:
        """Return the least memory in each quarter of the run: what nothing sets free."""
        after = [s.allocated_bytes or 0 for s in steps if s.step >= self.threshold("warm_up_steps")]
        size = len(after) // 4
        if size < self.threshold("warm_up_steps"):
            return []
        return [float(min(after[size * n : size * (n + 1)])) for n in range(4)]

    def _finding(self, run: Run, steps: Sequence[StepRow], allocated: Sequence[StepRow]) -> Finding:
        last = steps[-1]
        count = last.held_graphs or 0
        first = next(s for s in steps if (s.held_graphs or 0) >= self.threshold("graphs"))
        text = (
            f"After step {last.step}, the losses of {counted(count, 'earlier step')} still have their graphs: "
            "something holds on to them."
        )
        return self.finding(
            f"The graphs of {counted(count, 'earlier step')} are still alive: memory grows with every step.",
            evidence=[Evidence("held_graphs", count, text), *self._growth(allocated)],
            fixes=[_detach(line_of(run, "backward"))],
            location=Location((), first.step, last.step, source=line_of(run, "backward")),
        )

    def _growth(self, steps: Sequence[StepRow]) -> list[Evidence]:
        quarters = self._quarters(steps)
        if not quarters or quarters[-1] <= quarters[0]:
            return []
        grown = quarters[-1] - quarters[0]
        text = (
            f"Allocated memory grew by {bytes_text(grown)} ({percent(grown / quarters[0])}) from the first quarter of "
            "the run to the last."
        )
        return [Evidence("grown_bytes", grown, text)]

    def _unexplained(self, steps: Sequence[StepRow]) -> Finding:
        quarters = self._quarters(steps)
        per_step = (quarters[-1] - quarters[0]) / (0.75 * len(steps))
        text = f"That is {bytes_text(per_step)} a step."
        return self.finding(
            "Allocated memory rises from the first quarter of the run to the last, and no loss is held.",
            evidence=[*self._growth(steps), Evidence("bytes_per_step", per_step, text)],
            fixes=[
                Fix(
                    "Find what is kept",
                    "torch.cuda.memory._record_memory_history()  # before the loop\n"
                    'torch.cuda.memory._dump_snapshot("memory.pickle")  # after some steps',
                    "The snapshot names the lines that allocated what is still held.",
                    Grade.OBSERVED,
                )
            ],
            location=Location((), steps[0].step, steps[-1].step),
            confidence=Confidence.MEDIUM,
        )


def _detach(source: str | None) -> Fix:
    code = f"""\
total += loss.item()          # instead of total += loss
losses.append(loss.detach())  # instead of losses.append(loss){comment(source and f"the loss of {source}")}"""
    return Fix(
        "Keep the number, not the tensor", code, "Each step's graph is freed when the step is over.", Grade.OBSERVED
    )
