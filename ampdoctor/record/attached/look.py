"""Is there a training in this process that nobody records yet?"""

from __future__ import annotations

import torch

from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.recorder import Recorder


def why_not() -> str | None:
    """Return what keeps this process from being recorded; None if nothing does."""
    recorder = next((r for r in live_instances(Recorder) if not r.is_over(None)), None)
    if recorder is not None:
        return f"it is being recorded already, to {recorder.folder}"
    if not live_instances(torch.nn.Module) and not live_instances(torch.optim.Optimizer):
        return "no model and no optimizer lives there (if it is still starting, try again in a while)"
    return None
