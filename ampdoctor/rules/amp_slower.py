"""The rule amp-slower."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.analysis.advice.cures import device_type
from ampdoctor.analysis.forward.operations import operations
from ampdoctor.analysis.half_used import any_autocast
from ampdoctor.analysis.speed import surely_faster, timed, times_as_fast
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import HALF_DTYPES
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, PaceRow


FP32 = "fp32"


class _Work(NamedTuple):
    """The operations of one step: those that compute in half, and those that only cast to it."""

    step: int
    computing: int
    casting: int
    elements: float

    @property
    def cast_share(self) -> float:
        """Casts among them."""
        return self.casting / max(self.casting + self.computing, 1)


def _run(elements: int, *, casts: int = 24, autocast: str | None = "bfloat16") -> RunBuilder:
    """A step of twelve layers, each with weight and bias cast to half."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=2.0).twin_step(kind="local")
    run.tensor("layers.0", "activation", dtype="bfloat16", exponents={0: 8}, autocast=autocast)
    for layer in range(12):
        run.op("aten.addmm", f"layers.{layer}", numel=elements)
        run.op("aten.mm", f"layers.{layer}", direction="backward", calls=2, numel=2 * elements)
    columns = {"dtype_in": "float32", "calls": casts, "numel": casts * elements}
    return run.op("aten._to_copy", "layers.0", **columns) if casts else run


def _timed(fp32: float, own: float) -> RunBuilder:
    run = _run(256)
    for setting, ms in (("fp32", fp32), ("bf16", own)):
        run.pace(setting, own=setting == "bf16", wall_ms=ms, fastest_ms=0.98 * ms, slowest_ms=1.02 * ms)
    return run


class AmpSlower(Rule):
    """Autocast costs more time than it saves: a large part of the operations only cast small tensors.

    What it means
        Autocast casts inputs and weights of every operation that it runs in half, and gradients back. On small tensors
        an operation takes as long as it takes to start it, whatever its dtype, so that each cast costs as much as the
        operation that it is for.

    Why it matters
        Nothing is wrong with the training, but it would be faster in FP32.

    How to fix
        Larger batches, so that there is something to compute; `torch.compile`, which makes one kernel of a cast and
        what follows it, or CUDA graphs, which take away the cost of starting. Else leave autocast off.

    Not to be mistaken for
        A large model, where the casts vanish beside the matrix products. Half weights, which need no casts. Casts that
        the program makes itself, without autocast.
    """

    code = "AMP602"
    name = "amp-slower"
    severity = Severity.NOTE
    needs = ("ops", "tensors")
    thresholds = {
        "elements": Threshold(
            10_000,
            "starting an operation takes some 5 microseconds, in which a device computes as many results and more",
        ),
        "times": Threshold(1.1, "as fast in FP32, where both were timed: less is noise to a user"),
        "cast_share": Threshold(0.25, "each cast to half has one back in the backward pass: half as many again"),
    }
    HEALTHY = (
        Example("tiny layers that were timed, and are as fast as in FP32", lambda: _timed(20.0, 20.5)),
        Example("large tensors", lambda: _run(1_000_000)),
        Example("half weights", lambda: _run(256, casts=1)),
        Example("gradients that the program casts itself", lambda: _run(256, autocast=None)),
    )
    SICK = (
        Example("timed, and FP32 is faster", lambda: _timed(20.0, 33.0)),
        Example("tiny layers", lambda: _run(256)),
        Example("few casts to many operations, and all small", lambda: _run(4096, casts=13)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        if not any_autocast(run):
            return
        paces = timed(run)
        own = next((row for row in paces.values() if row.own), None)
        if own is not None and own.setting != FP32 and FP32 in paces:
            # What was measured needs no guess.
            if surely_faster(paces[FP32], own) and times_as_fast(paces[FP32], own) >= self.threshold("times"):
                yield self._measured(run, own, paces[FP32])
            return
        steps = [work for step in operations(run) if (work := _work(run, step)) is not None]
        slow = [
            work
            for work in steps
            if work.elements <= self.threshold("elements") and work.cast_share >= self.threshold("cast_share")
        ]
        if slow and len(slow) == len(steps):
            yield self._finding(run, slow[-1])

    def _measured(self, run: Run, own: PaceRow, fp32: PaceRow) -> Finding:
        times = times_as_fast(fp32, own)
        evidence = [
            Evidence(
                f"{row.setting}_ms", row.wall_ms or 0.0,
                f"Forward and backward of step {row.step} took {number(row.wall_ms or 0.0)} ms {how}, from "
                f"{number(row.fastest_ms or 0.0)} to {number(row.slowest_ms or 0.0)} in {row.rounds} rounds.",
                Grade.MEASURED,
            )
            for row, how in ((own, "under autocast as in the run"), (fp32, "in FP32"))
        ]  # fmt: skip
        saved = f"Forward and backward take {number(fp32.wall_ms or 0.0)} ms instead of {number(own.wall_ms or 0.0)}."
        return self.finding(
            f"Autocast makes this run slower: in FP32 forward and backward are {number(times)} times as fast.",
            evidence=evidence,
            fixes=[
                Fix(
                    "Leave autocast off", f'torch.autocast("{device_type(run)}", enabled=False)', saved, Grade.MEASURED
                ),
                _larger(),
            ],
            location=Location((), own.step, own.step),
            grade=Grade.MEASURED,
        )

    def _finding(self, run: Run, work: _Work) -> Finding:
        share = percent(work.cast_share)
        return self.finding(
            f"Autocast probably makes this run slower: {share} of its half-precision operations are casts of small "
            "tensors.",
            evidence=[
                Evidence(
                    "cast_share", work.cast_share,
                    f"On step {work.step}, {counted(work.casting, 'operation')} only cast to half, beside "
                    f"{work.computing} that compute in half: {share}.",
                ),
                Evidence(
                    "elements_per_operation", work.elements,
                    f"Half of those that compute make at most {number(work.elements)} elements each: they take as long "
                    "as it takes to start them.",
                ),
            ],
            fixes=[
                _larger(),
                Fix(
                    "Leave autocast off",
                    f'torch.autocast("{device_type(run)}", enabled=False)',
                    f"{counted(2 * work.casting, 'operation')} fewer a step, forward and backward.",
                ),
            ],
            location=Location((), work.step, work.step),
            confidence=Confidence.MEDIUM,
            grade=Grade.ESTIMATED,
        )  # fmt: skip


def _larger() -> Fix:
    return Fix(
        "Give each operation more to do",
        "DataLoader(dataset, batch_size=8 * batch_size)  # or model = torch.compile(model)",
        "The casts vanish beside larger products; compiled, they become part of what follows them.",
    )


def _work(run: Run, step: int) -> _Work | None:
    """Return what local twins saw of `step`; None where nothing computes in half."""
    rows = operations(run)[step]
    casts = [r for r in rows if _to_half(r) and "_to_copy" in r.op and r.dtype_in == "float32"]
    computing = [r for r in rows if _to_half(r) and "_to_copy" not in r.op]
    if not computing:
        return None
    sizes = [r.numel / r.calls for r in computing for _ in range(r.calls)]
    return _Work(step, len(sizes), sum(r.calls for r in casts), median(sizes))


def _to_half(row: OpRow) -> bool:
    return row.dtype_out in HALF_DTYPES
