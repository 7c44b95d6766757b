"""The rule autocast-not-active."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.autocast_reach import DEVICE, OUTSIDE, THREAD, missed_blocks
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import title_of_dtype
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.calls.autocast_reach import Missed
    from ampdoctor.trace.run import Run


def _run(*, device: str = "cpu", force: bool = True, asked: bool = True) -> RunBuilder:
    """A step that enters autocast for `device`; the model is on the CPU."""
    columns = {"target": "autocast0", "device_type": device, "dtype": "float16", "asked": asked}
    place = {"file": "train.py", "line": 30}
    run = RunBuilder().step(loss=1.0).module("head", device="cpu")
    return run.call("autocast_enter", autocast="float16" if force else None, **columns, **place)


def _outside(nodes: int = 1) -> RunBuilder:
    run = _run().call("autocast_exit", target="autocast0", nodes=nodes)
    return run.tensor("head", "activation", exponents={0: 10})


def _threaded() -> RunBuilder:
    run = _run().call("threaded_call", target="head", dtype="float32", device_type="cpu", optimizers=["optimizer0"])
    return run.call("autocast_exit", target="autocast0").call("backward")


class AutocastNotActive(Rule):
    """Autocast was entered, and the model runs in FP32 all the same.

    What it means
        `torch.autocast` changes what runs inside its block, in the thread that entered it, on the device type that it
        was made for. A block for `cuda` does nothing to a model on the CPU (and torch switches it off, with one
        warning, where there is no CUDA); a worker thread starts without autocast; a module that is called outside the
        block is not touched.

    Why it matters
        Nothing fails: every activation stays in FP32. There is no saving of memory and no speed-up, and whatever is
        compared with this run as "mixed precision" is not.

    How to fix
        Make the block for the device that the model is on (`x.device.type`), enter it in the thread that calls the
        model (decorate `forward`), and call the model inside it.

    Not to be mistaken for
        FP32 on purpose: no autocast at all, `enabled=False`, or a dtype of float32. A small block around one operation
        in an FP32 model. Training in FP32 beside an evaluation under autocast.
    """

    code = "AMP501"
    name = "autocast-not-active"
    severity = Severity.WARNING
    needs = ("calls",)
    HEALTHY = (
        Example(
            "the model runs in half",
            lambda: _run().tensor("head", "activation", dtype="float16", autocast="float16", exponents={0: 10}),
        ),
        Example(
            "switched off on purpose",
            lambda: _run(force=False, asked=False).tensor("head", "activation", exponents={0: 10}),
        ),
        Example("a metric without gradients, beside an FP32 model", lambda: _outside(nodes=0)),
        Example(
            "one operation in half, in an FP32 model",
            lambda: _outside().twin_step(kind="local").op("aten.mm", dtype_out="float16"),
        ),
    )
    SICK = (
        Example(
            "made for cuda, where there is none",
            lambda: _run(device="cuda", force=False).tensor("head", "activation", exponents={0: 1}),
        ),
        Example("made for another device", lambda: _run(device="cuda").tensor("head", "activation", exponents={0: 10})),
        Example("the model is called outside the block", _outside),
        Example("the model is called by another thread", _threaded),
        Example("the training runs in another thread", lambda: _run().tensor("head", "activation", exponents={0: 10})),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        missed = missed_blocks(run)
        if missed is None:
            return
        if missed.kind == DEVICE:
            yield self._device(run, missed)
        elif missed.kind == OUTSIDE:
            yield self._outside(missed)
        else:
            yield self._thread(missed)

    def _device(self, run: Run, missed: Missed) -> Finding:
        enter = missed.blocks[0].enter
        made_for, on = enter.device_type or "cuda", " and ".join(missed.devices) or "cpu"
        evidence = [
            _block_evidence(missed),
            Evidence("device_of_block", made_for, f"It is for the device type `{made_for}`."),
        ]
        if missed.devices:
            text = f"The model's parameters are on `{on}`."
            evidence.append(Evidence("device_of_model", on, text))
        if not missed.blocks[0].in_force:
            text = f"Torch switches it off: `{made_for}` is not there, which it says in a warning."
            evidence.append(Evidence("switched_off", True, text))
        now = comment(missed.blocks[0].source, f'now "{made_for}"')
        lines = [
            f"with torch.autocast(device_type=x.device.type, dtype=torch.{enter.dtype}):{now}",
            "    output = model(x)",
        ]
        if any(row.event == "seen" and row.device_type == made_for for row in run.scaler):
            lines.insert(0, f'scaler = torch.amp.GradScaler("{on}")  # now for {made_for} as well')
        return self.finding(
            f"Autocast is not active: it is for {made_for} and the model is on {on}, so that everything runs in FP32.",
            evidence=[*evidence, *_fp32_evidence(missed)],
            fixes=[Fix("Make autocast for the device that the model is on", "\n".join(lines), _expected(missed))],
            location=_location(missed),
        )

    def _thread(self, missed: Missed) -> Finding:
        if missed.kind == THREAD:
            call = missed.threaded[0]
            modules = len({c.target for c in missed.threaded})
            line = source_of(call)
            by = "another thread calls the model, in FP32"
            text = (
                f"{counted(modules, 'trained module')}, `{call.target or 'the model'}` first, called by another thread "
                f"than the one that entered the block, had autocast off and returned `{call.dtype}`."
            )
        else:
            row = next(r for r in missed.outputs if missed.blocks[0].holds(r))
            modules, line = len({r.module for r in missed.outputs}), None
            by = "the training runs in another, in FP32"
            first = row.module or "the model"
            text = f"{counted(modules, 'module')}, `{first}` first, ran with autocast off while it was open."
        return self.finding(
            f"Autocast is not active where the model runs: it was entered in one thread, and {by}.",
            evidence=[
                _block_evidence(missed),
                Evidence("modules_without_autocast", modules, text),
                *_fp32_evidence(missed),
            ],
            fixes=[_in_the_thread(missed, line)],
            location=_location(missed),
        )

    def _outside(self, missed: Missed) -> Finding:
        enter = missed.blocks[0].enter
        code = f"""\
with torch.autocast("{enter.device_type}", dtype=torch.{enter.dtype}):{comment(missed.blocks[0].source)}
    output = model(x)  # the call belongs inside
    loss = criterion(output, target)"""
        text = "No trained module was called while one of the blocks was open, and 0 tensors are in half."
        return self.finding(
            "Autocast is entered, but the model is called outside its block, so that everything runs in FP32.",
            evidence=[
                _block_evidence(missed), Evidence("half_tensors", 0, text), *_fp32_evidence(missed),
            ],
            fixes=[Fix("Call the model inside the block", code, _expected(missed))],
            location=_location(missed),
            confidence=Confidence.MEDIUM,
        )  # fmt: skip


def _block_evidence(missed: Missed) -> Evidence:
    block = missed.blocks[0]
    where = f" at {block.source}" if block.source else ""
    steps = counted(len({b.enter.step for b in missed.blocks}), "examined step")
    title = title_of_dtype(block.enter.dtype or "")
    text = f"`torch.autocast` with {title} was entered{where}, on {steps}."
    return Evidence("autocast_dtype", block.enter.dtype or "", text)


def _fp32_evidence(missed: Missed) -> list[Evidence]:
    modules = len({r.module for r in missed.outputs})
    if not modules or missed.kind == THREAD:
        return []
    dtypes = " and ".join(sorted({title_of_dtype(r.dtype) for r in missed.outputs}))
    text = f"The outputs of all {counted(modules, 'recorded module')} are in {dtypes}."
    return [Evidence("modules_in_fp32", modules, text)]


def _expected(missed: Missed) -> str:
    title = title_of_dtype(missed.blocks[0].enter.dtype or "")
    return f"Matrix products and convolutions run in {title}."


def _in_the_thread(missed: Missed, line: str | None) -> Fix:
    enter = missed.blocks[0].enter
    made = f'torch.autocast("{enter.device_type}", dtype=torch.{enter.dtype})'
    code = f"""\
def work(x):{comment("what the thread runs", line)}
    with {made}:
        return model(x)

# or once, for every thread:
model.forward = {made}(model.forward)"""
    return Fix("Enter autocast in the thread that calls the model", code, _expected(missed))


def _location(missed: Missed) -> Location:
    if missed.kind == THREAD:
        steps = [c.step for c in missed.threaded]
        sites = dict.fromkeys(f"{c.target or 'model'} (activation)" for c in missed.threaded)
    else:
        steps = [r.step for r in missed.outputs] or [b.enter.step for b in missed.blocks]
        sites = dict.fromkeys(f"{r.site} (activation)" for r in missed.outputs)
    return Location(tuple(sites)[:5], min(steps), max(steps), source=missed.blocks[0].source)
