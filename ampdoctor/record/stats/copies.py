"""Copies of many FP32 tensors in one piece of memory, and what has changed in the tensors since: by the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ampdoctor.record.stats import cpu

MOST_ELEMENTS = 1 << 20
"""Elements that are copied into one piece at most. Many small tensors gain by it; of few large ones the memory is what
takes time, and a piece as large as the model, made anew for each step, takes more of both."""


@dataclass
class Copy:
    """Copies of tensors, one after another.

    Attributes:
        values: all of them.
        places: where each lies, as the kernel is told.
        shapes: theirs.
    """

    values: torch.Tensor
    places: cpu.Places
    shapes: list[torch.Size]

    def describes(self, tensors: list[torch.Tensor]) -> cpu.Places | None:
        """Return where tensors lie that are of the same number, shapes and dtype; None where they are others."""
        now = cpu.places_of(tensors)
        same = now is not None and [t.shape for t in tensors] == self.shapes
        return now if same and now is not None and not now[:, 0].any() else None

    def apart(self) -> list[torch.Tensor]:
        """Return each copy by itself."""
        sizes = self.places[:, 2].tolist()
        return [part.view(shape) for part, shape in zip(self.values.split(sizes), self.shapes, strict=True)]


def copied(tensors: list[torch.Tensor]) -> Copy | None:
    """Return copies of tensors; None where they are large or empty, or not all FP32, on the host and contiguous."""
    places = cpu.places_of(tensors) if tensors else None
    if places is None or places[:, 0].any() or cpu.copy is None:
        return None
    sizes = places[:, 2]
    if not 0 < sizes.sum() <= MOST_ELEMENTS:
        return None
    values = torch.empty(int(sizes.sum()), dtype=torch.float32, device="cpu")
    cpu.copy(places.ctypes.data, len(places), values.data_ptr())
    own = np.zeros_like(places)
    own[:, 1] = values.data_ptr() + values.element_size() * (np.cumsum(sizes) - sizes)
    own[:, 2] = sizes
    return Copy(values, own, [t.shape for t in tensors])


def subtract(copy: Copy, now: cpu.Places) -> None:
    """Leave in `copy` what the tensors at `now` have lost since."""
    cpu.subtract(now.ctypes.data, len(now), copy.values.data_ptr())  # type: ignore[misc]
