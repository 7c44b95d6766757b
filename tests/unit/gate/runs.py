"""Runs for the gate's tests, by rows: layers whose gradients are flushed, subnormal and turned as far as wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.engine import diagnose
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.trace.run import Run

MODULES = ("a", "b")


def built(
    *,
    flushed: int = 0,
    subnormal: int = 10,
    skipped: int = 0,
    scale: float = 65536.0,
    cosine: float = 1.0,
    nan_losses: int = 0,
    memory: int = 1 << 24,
    wall_ms: float = 10.0,
    modules: Sequence[str] = MODULES,
    device: str = "cpu",
) -> RunBuilder:
    """Return a run of 20 steps with a twin on step 2; counts are out of 100 elements, or 20 steps."""
    builder = RunBuilder(device=device, versions={"torch": "2.13.0", "python": "3.11"})
    for step in range(20):
        loss = float("nan") if step < nan_losses else 1.0
        builder.step(loss=loss, applied=step >= skipped, loss_scale=scale, wall_ms=wall_ms, examined=step % 2 == 0)
        if step % 2:
            continue
        for module in modules:
            counts = {-20: subnormal, -5: 100 - subnormal}
            columns: dict[str, Any] = {"dtype": "float16", "loss_scale": scale, "exponents": counts}
            builder.tensor(module, "grad_output", **columns)
            builder.tensor(module, "weight_grad", slot="weight", **columns)
        if step == 2:
            _twin(builder, flushed, cosine, modules)
            builder.memory("peak", "activations", memory).memory("peak", "weights", 1 << 20)
    return builder


def _twin(builder: RunBuilder, flushed: int, cosine: float, modules: Sequence[str]) -> None:
    builder.twin_step("run", "fp32")
    total = 100 * len(modules)
    builder.twin("run", "", "gradient", numel=total, nonzero=total, flushed=flushed * len(modules), cosine=cosine)
    for module in modules:
        builder.twin("run", module, "weight_grad", flushed=flushed, cosine=cosine)


def judged(run: Run) -> tuple[Run, Diagnosis]:
    """Return the run with a diagnosis that no rule has a part in: these tests are of metrics."""
    return run, diagnose(run, rules=())
