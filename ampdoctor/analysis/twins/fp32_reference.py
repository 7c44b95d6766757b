"""What "FP32" is on the device of a run: with TF32 allowed, its products are rounded as coarsely as FP16's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import NO_NATIVE_BF16, device_type

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

COARSE = frozenset({"high", "medium"})
"""Settings of `torch.set_float32_matmul_precision` under which FP32 matrices are multiplied in TF32 or BF16."""

BY_CUDNN = ("Conv", "ConvTranspose", "RNN", "LSTM", "GRU")
"""Beginnings of the names of modules that cuDNN computes, in TF32 unless that was turned off."""


def fp32_name(run: Run) -> str:
    """Return what to call the reference that twins are compared with: `FP32`, `FP32 (with TF32 matmuls)`."""
    settings = run.info.precision
    # TF32 came with compute capability 8.0, as BF16 did.
    if device_type(run) != "cuda" or NO_NATIVE_BF16.search(run.info.device):
        return "FP32"
    if settings.get("allow_tf32_matmul") or settings.get("float32_matmul_precision") in COARSE:
        return "FP32 (with TF32 matmuls)"
    by_cudnn = any(m.type.removeprefix("Lazy").startswith(BY_CUDNN) for m in run.modules)
    if settings.get("allow_tf32_cudnn") and by_cudnn:
        return "FP32 (with TF32 convolutions)"
    return "FP32"
