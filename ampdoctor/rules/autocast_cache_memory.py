"""The rule autocast-cache-memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.calls.autocast_blocks import autocast_blocks
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.wording import counted, number
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.calls.autocast_blocks import AutocastBlock
    from ampdoctor.trace.run import Run

_MIB = 2.0**20
_HALF_BYTES, _FP32_BYTES = 2, 4


def _run(layers: int = 40, *, trainable: int = 1 << 20, train: int = 0, **block: Any) -> RunBuilder:
    """Forward passes without gradients in one block, over layers of a million weights; `train` of them are trained."""
    run = RunBuilder().step(loss=None)
    names = [f"blocks.{layer}" for layer in range(layers)]
    for layer, name in enumerate(names):
        owner = "optimizer0" if layer < train else None
        run.module(name, parameters=1 << 20, trainable=trainable, optimizer=owner)
    if train:
        _block(run, names[:train], grad=True).call("backward")
    return _block(run, names, **block)


def _block(
    run: RunBuilder, modules: list[str], *, passes: int = 2, cache: bool = True, grad: bool = False
) -> RunBuilder:
    block = {"target": f"autocast{grad}", "device_type": "cpu", "dtype": "bfloat16", "asked": True, "depth": 0}
    run.call("autocast_enter", autocast="bfloat16", cache_enabled=cache, file="serve.py", line=9, **block)  # fmt: skip
    for name in modules:
        run.tensor(name, "activation", dtype="bfloat16", autocast="bfloat16", exponents={0: 8}, grad_enabled=grad)
    return run.call("autocast_exit", module_calls=passes, **block)


@dataclass(frozen=True)
class _Held:
    """What one block keeps: half copies of the weights of modules, in bytes."""

    block: AutocastBlock
    copies: dict[str, int]
    training_bytes: int = 0

    @property
    def whole_bytes(self) -> int:
        """All of them."""
        return sum(self.copies.values())

    @property
    def largest_bytes(self) -> int:
        """Those of one module."""
        return max(self.copies.values(), default=0)

    @property
    def extra_bytes(self) -> int:
        """What is beyond the copies that training keeps at a time: so much is not needed for anything."""
        return self.whole_bytes - self.training_bytes


class AutocastCacheMemory(Rule):
    """Autocast keeps a half copy of every weight for as long as a block without gradients is open.

    What it means
        Autocast keeps the cast of each FP32 weight that requires a gradient until the outermost block is left, so that
        it is cast once and not at each use. With one block around an inference loop that is for ever: the half copies
        lie beside the FP32 weights, also under no_grad.

    Why it matters
        Memory grows by half a model where it was meant to shrink. Half precision then needs more memory than FP32.

    How to fix
        `model.requires_grad_(False)` for inference, for such weights are not kept; or `cache_enabled=False`; or a
        block around each forward pass. A model that only ever serves can be cast once: `model.to(torch.bfloat16)`.

    Not to be mistaken for
        Training under autocast: the backward pass needs the copies anyway. An evaluation of the model that is trained,
        or of its average: the copies are no more than training held. A small model.
    """

    code = "AMP503"
    name = "autocast-cache-memory"
    severity = Severity.WARNING
    needs = ("calls", "tensors", "modules")
    thresholds = {
        "least_mib": Threshold(
            32.0, "a seventh of what a process takes that has only imported torch (some 220 MiB): less goes unnoticed"
        ),
        "times_largest": Threshold(4.0, "without the cache one copy is there at a time: here several times as much is"),
        "passes": Threshold(2.0, "a block around one forward pass is as short as can be"),
    }
    HEALTHY = (
        Example("no cache", lambda: _run(cache=False)),
        Example("weights that require no gradient", lambda: _run(trainable=0)),
        Example("a small model", lambda: _run(layers=4)),
        Example("a block around each forward pass", lambda: _run(passes=1)),
        Example("an evaluation of what is trained", lambda: _run(train=40)),
        Example("hardly more than training holds", lambda: _run(train=30)),
    )
    SICK = (
        Example("an inference loop in one block", _run),
        Example("thousands of requests in one block", lambda: _run(passes=5000)),
        Example("an evaluation of much more than is trained", lambda: _run(train=4)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        material = [h for h in _without_gradients(run) if self._matters(h)]
        if material:
            yield self._finding(run, max(material, key=lambda h: h.extra_bytes))

    def _matters(self, held: _Held) -> bool:
        calls = held.block.left.module_calls if held.block.left is not None else None
        return (
            held.extra_bytes >= self.threshold("least_mib") * _MIB
            and held.extra_bytes >= self.threshold("times_largest") * held.largest_bytes
            # A block that was never left was open to the end of the run.
            and (held.block.left is None or (calls or 0) >= self.threshold("passes"))
        )

    def _finding(self, run: Run, held: _Held) -> Finding:
        block, mib = held.block, held.whole_bytes / _MIB
        title = title_of_dtype(block.enter.dtype or "")
        weights = mib * _FP32_BYTES / _HALF_BYTES
        calls = block.left.module_calls if block.left is not None else None
        where = f" at {block.source}" if block.source else ""
        lasts = f"each module was called {calls} times in it" if calls else "it was not left before step 1 was over"
        evidence = [
            Evidence(
                "copies_mib", mib,
                f"{title} copies of the weights of {counted(len(held.copies), 'module')} take {number(mib)} MiB, "
                f"beside {number(weights)} MiB in FP32.", Grade.ESTIMATED,
            ),
            Evidence(
                "module_calls", calls or 0,
                f"They are kept until the block entered{where} is left: {lasts}.",
            ),
            Evidence(
                "largest_copy_mib", held.largest_bytes / _MIB,
                f"Without the cache one copy is there at a time, of {number(held.largest_bytes / _MIB)} MiB at most.",
                Grade.ESTIMATED,
            ),
        ]  # fmt: skip
        if held.training_bytes:
            beside = held.training_bytes / _MIB
            text = f"Training keeps other copies, of {number(beside)} MiB, for no longer than a block of its own."
            evidence.append(Evidence("training_copies_mib", beside, text, Grade.ESTIMATED))
        sites = tuple(f"{m} (weight)" for m in list(held.copies)[:5])
        return self.finding(
            f"Autocast keeps {number(mib)} MiB of {title} weight copies for as long as one block stays open, though no "
            "gradient is needed.",
            evidence=evidence,
            fixes=_fixes(run, block, mib),
            location=Location(sites, block.enter.step, block.enter.step, source=block.source),
            grade=Grade.ESTIMATED,
        )


def _without_gradients(run: Run) -> list[_Held]:
    """Return what blocks without gradients keep of weights that nobody trains, beside what those with them keep."""
    trains = bool(calls_named(run, "backward"))
    blocks = [(b, _ran(run, b)) for b in autocast_blocks(run) if _keeps(b)]
    trained = {m.module for m in run.modules if m.optimizer is not None} if trains else set()
    training_bytes = 0
    for _, ran in blocks:
        if trains and any(ran.values()):
            trained |= ran.keys()
            training_bytes = max(training_bytes, sum(_copies(run, {*ran}).values()))
    found = (_Held(block, _copies(run, ran.keys() - trained), training_bytes) for block, ran in blocks)
    return [held for held in found if held.copies]


def _keeps(block: AutocastBlock) -> bool:
    return block.in_force and bool(block.enter.cache_enabled) and not block.enter.depth


def _ran(run: Run, block: AutocastBlock) -> dict[str, bool]:
    """Return what ran in half in a block, and whether with gradients."""
    ran: dict[str, bool] = {}
    for r in run.tensors("activation", dtypes=HALF_DTYPES):
        if block.holds(r) and r.autocast is not None and r.slot.startswith("out"):
            ran[r.module] = ran.get(r.module, False) or r.grad_enabled
    return ran


def _copies(run: Run, modules: set[str]) -> dict[str, int]:
    """Return the bytes of the copies by module: of FP32 weights that require a gradient."""
    return {
        m.module: m.trainable * _HALF_BYTES
        for m in run.modules
        if m.module in modules and m.trainable and "float32" in m.dtypes
    }


def _fixes(run: Run, block: AutocastBlock, mib: float) -> list[Fix]:
    device = block.enter.device_type or device_type(run)
    made = f'torch.autocast("{device}", dtype=torch.{block.enter.dtype}'
    freed = f"{number(mib)} MiB are no longer kept."
    return [
        Fix(
            "Say that no gradient is needed",
            "model.requires_grad_(False)  # where it is not trained: casts of such weights are not kept",
            f"{freed} Each use casts its weight.",
            Grade.ESTIMATED,
        ),
        Fix("Keep no casts", f"with {made}, cache_enabled=False):{comment(block.source)}", freed),
        Fix(
            "Enter autocast for each forward pass",
            f"for x in batches:\n    with torch.no_grad(), {made}):\n        output = model(x)",
            "The copies go at the end of each pass, and come back with the next.",
        ),
    ]
