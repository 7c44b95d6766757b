"""Statistics of tensors in a GPU's memory: one pass and one launch for a tensor, or for many small ones.

Triton is optional and imported on request only. Nothing waits for the device and nothing is compiled in a step:
a device is measured on only once `warm_up` has compiled for it everything there is. Counts and absmax are exact;
the sum of squares is in FP64, but the order in which programs add to it is not fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.quiet import autocast_off
from ampdoctor.record.stats import triton_launch
from ampdoctor.record.stats.layout import EXTRA

if TYPE_CHECKING:
    from collections.abc import Sequence


_PROGRAMS_PER_CORE = 4
"""As many as run at once: more of them would wait for a place, and the last ones run alone."""

_ready: dict[tuple[torch.device, torch.dtype], int] = {}
"""By device and dtype for which all is compiled, the number of programs that fill the device."""

USUAL = (torch.float32, torch.float16, torch.bfloat16)
"""What to compile where nobody says more: FP8 as well would double the wait."""


def available() -> bool:
    """Whether Triton is installed; the first call imports it, which takes a moment."""
    return triton_launch.program() is not None


def warm_up(device: torch.device, dtypes: Sequence[torch.dtype] = USUAL) -> bool:
    """Compile every variant for `device`; return False, and measure nothing there, where that can't be done.

    Takes some seconds the first time on a machine (Triton keeps what it has compiled). To be called when nothing is in
    a hurry: not in a step, nor in the capture of a graph.
    """
    found = triton_launch.program()
    if found is None or device.type != ("cpu" if found.INTERPRETED else "cuda"):
        return False
    try:
        device = torch.empty(0, device=device).device  # which of several, too
        cores = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        with torch.no_grad(), autocast_off(device.type), triton_launch.current(device):
            for dtype in dtypes:
                if (device, dtype) not in _ready:
                    triton_launch.compile_for(dtype, device)
                    _ready[device, dtype] = cores * _PROGRAMS_PER_CORE
    except Exception:  # noqa: BLE001 - no compiler, an unknown GPU: there are torch's operations
        return False
    return True


def measure(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor | None:
    """Return the statistics of `tensor` as `torch_ops.statistics_vector` does, or None where this kernel can't.

    Args:
        tensor: any that is `measurable`.
        out: EXTRA zeros in FP64 on its device to write to: a row of a table that was zeroed at once.
    """
    device = tensor.device
    programs = _ready.get((device, tensor.dtype.to_real()))
    if programs is None:
        return None
    with torch.no_grad(), autocast_off(device.type), triton_launch.current(device):
        elements = triton_launch.as_it_lies(tensor.detach())
        if elements is None:
            return None
        if out is None:
            out = torch.zeros(EXTRA, dtype=torch.float64, device=device)
        if elements.numel():
            triton_launch.launch_one(elements, out, programs)
        return out


def measure_group(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the statistics of tensors of one dtype and device, a row each, or None where this kernel can't.

    One launch for all: for small tensors, of which a launch each would take longer than the work.
    """
    if not tensors or len({(t.device, t.dtype) for t in tensors}) > 1:
        return None
    device, dtype = tensors[0].device, tensors[0].dtype.to_real()
    if (device, dtype) not in _ready:
        return None
    with torch.no_grad(), autocast_off(device.type), triton_launch.current(device):
        elements = [
            triton_launch.aligned(e) for t in tensors if (e := triton_launch.as_it_lies(t.detach())) is not None
        ]
        if len(elements) < len(tensors):
            return None
        out = torch.zeros((len(elements), EXTRA), dtype=torch.float64, device=device)
        triton_launch.launch_many(elements, out)
        return out
