"""The rule sizes-miss-tensor-cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.speed import Speed, speeds
from ampdoctor.analysis.wording import counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_MULTIPLE = 8


def _run(vocabulary: int, *, ms: float = 4.0, device: str = "cuda: NVIDIA A100", dtype: str = "float16") -> RunBuilder:
    """Ten milliseconds of products, `ms` of them by the head onto a vocabulary."""
    run = RunBuilder(device=device).step(loss=2.0)
    run.tensor("head", "weight", slot="weight", dtype="float32", exponents={-5: 64}, shape=[vocabulary, 768])
    missing = vocabulary % _MULTIPLE != 0
    run.timing("aten.mm", "head", dtype_out=dtype, dtype_in=dtype, device_ms=ms, misaligned=int(missing))
    return run.timing("aten.mm", "blocks.0", dtype_out=dtype, dtype_in=dtype, device_ms=10.0 - ms)


class SizesMissTensorCores(Rule):
    """Half matrix products have sizes that are no multiples of 8, which tensor cores are slow at.

    What it means
        Tensor cores take blocks of 16 bytes, which are 8 numbers in FP16 or BF16. A product with another size is padded
        by the library where it can be, and else runs on ordinary cores. A vocabulary of 50,257 words is the best known
        example.

    Why it matters
        Half precision is turned on for its speed, and these operations get little or none of it.

    How to fix
        Round the size up: the vocabulary, the width of a layer, channels, the batch or the length of sequences. The
        rows that are added are never used.

    Not to be mistaken for
        A CPU, whose half products have no such rule. FP32. Odd sizes in operations that take no time.
    """

    code = "AMP606"
    name = "sizes-miss-tensor-cores"
    severity = Severity.NOTE
    needs = ("timings",)
    thresholds = {"time_share": Threshold(0.05, "of the operations' time: there is at most as much to gain")}
    HEALTHY = (
        Example("a vocabulary of 50,264 words", lambda: _run(50264)),
        Example("a head that takes no time", lambda: _run(50257, ms=0.2)),
        Example("on a CPU", lambda: _run(50257, device="cpu")),
    )
    SICK = (
        Example("a vocabulary of 50,257 words", lambda: _run(50257)),
        Example("in BF16", lambda: _run(129, dtype="bfloat16")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        if not (run.info.device or "").startswith("cuda"):
            return
        for speed in speeds(run)[-1:]:
            share = speed.share(speed.misaligned)
            if share >= self.threshold("time_share"):
                yield self._finding(run, speed, share)

    def _finding(self, run: Run, speed: Speed, share: float) -> Finding:
        rows = sorted(speed.misaligned, key=lambda r: -speed.ms(r))
        modules = list(dict.fromkeys(r.module for r in rows if r.module))
        calls = sum(r.misaligned for r in rows)
        odd = _odd_weights(run, modules)
        shapes = "".join(f" The weight of {m} is {' x '.join(map(str, shape))}." for m, shape in odd[:3])
        return self.finding(
            f"{percent(share)} of the operations' time goes to half matrix products with sizes that are no multiples "
            f"of {_MULTIPLE}.",
            evidence=[
                Evidence(
                    "time_share", share,
                    f"On step {speed.step}, {counted(calls, 'product')} with such sizes took {percent(share)} of the "
                    f"time of all operations.{shapes}",
                )
            ],
            fixes=[
                Fix(
                    "Round the sizes up to multiples of 8",
                    _code(odd),
                    f"Of {percent(share)} of the time, some: how much depends on the GPU and its libraries.",
                )
            ],
            location=Location(tuple(f"{m} (weight)" for m in modules[:5]), speed.step, speed.step),
            confidence=Confidence.MEDIUM,
            grade=Grade.ESTIMATED,
        )  # fmt: skip


def _odd_weights(run: Run, modules: list[str]) -> list[tuple[str, list[int]]]:
    """Return the weights of `modules` that have such a size themselves, with their shapes."""
    shapes = {t.module: t.shape for t in run.tensors("weight") if t.module in set(modules) and len(t.shape) > 1}
    return [(m, shapes[m]) for m in modules if m in shapes and any(size % _MULTIPLE for size in shapes[m][:2])]


def _code(odd: list[tuple[str, list[int]]]) -> str:
    sizes = [size for _, shape in odd for size in shape[:2] if size % _MULTIPLE]
    if not sizes:
        return "batch_size = 8 * math.ceil(batch_size / 8)  # and the length of sequences likewise"
    return f"size = {-(-sizes[0] // _MULTIPLE) * _MULTIPLE}  # instead of {sizes[0]}"
