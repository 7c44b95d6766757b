"""Runs with a ledger, built by hand."""

from __future__ import annotations

from ampdoctor.trace.builder import RunBuilder

KIB = 1024
MIB = 1024 * KIB
HALF = "bfloat16"


def amp_run(device: str = "cpu") -> RunBuilder:
    """A transformer of two blocks under BF16 autocast with Adam, one MiB of weights."""
    run = RunBuilder().step()
    for phase in ("forward", "backward", "step", "peak"):
        _standing(run, phase, device)
        if phase in {"forward", "peak"}:
            _activations(run, phase, device)
        if phase != "forward":
            run.memory(phase, "gradients", MIB, device=device)
    run.timing("aten.addmm", "blocks.0.fc", dtype_out=HALF, autocast=HALF, host_ms=2.0)
    run.timing("aten.addmm", "blocks.1.fc", dtype_out=HALF, autocast=HALF, host_ms=2.0)
    return run.timing("aten.mm", "head", direction="backward", host_ms=4.0)


def _standing(run: RunBuilder, phase: str, device: str) -> None:
    run.memory(phase, "weights", MIB, device=device)
    run.memory(phase, "optimizer", MIB, kind="exp_avg", device=device)
    run.memory(phase, "optimizer", MIB, kind="exp_avg_sq", device=device)
    run.memory(phase, "optimizer", 40, kind="step", device=device, storages=10)
    run.memory(phase, "buffers", 8, dtype="int64", device=device)


def _activations(run: RunBuilder, phase: str, device: str) -> None:
    for block in ("blocks.0", "blocks.1"):
        run.memory(phase, "activations", MIB, kind="aten.addmm", module=f"{block}.fc", dtype=HALF, device=device)
        run.memory(phase, "activations", MIB, kind="aten.gelu", module=f"{block}.act", dtype=HALF, device=device)
        run.memory(phase, "activations", 512 * KIB, kind="aten.add", module=block, device=device)
        run.memory(phase, "activations", 1 * KIB, kind="aten.native_layer_norm", module=f"{block}.ln", device=device)
        run.memory(
            phase, "activations", 256 * KIB, kind="aten._to_copy", module=f"{block}.q", dtype=HALF, device=device
        )
        run.memory(
            phase, "activations", 256 * KIB, kind="aten._to_copy (copy)", module=f"{block}.k", dtype=HALF, device=device
        )
    run.memory(phase, "activations", 3 * MIB, kind="aten._log_softmax", device=device)
    run.memory(phase, "autocast_cache", 512 * KIB, dtype=HALF, device=device)
    run.memory(phase, "temporary", 100, device=device)
