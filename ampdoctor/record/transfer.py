"""One transfer for all that a step measured: many small device tensors to the host, without waiting.

On CUDA they are concatenated on the device, copied to pinned memory asynchronously, and read once the event behind
the copy has passed; on the CPU they are there at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Transfer:
    """The copy under way of `vectors`, float64 and one-dimensional, on any devices."""

    def __init__(self, vectors: Sequence[torch.Tensor]) -> None:
        self._sizes = [v.numel() for v in vectors]
        self._parts: list[tuple[list[int], torch.Tensor, torch.cuda.Event | None]] = []
        by_device: dict[torch.device, list[int]] = {}
        for index, vector in enumerate(vectors):
            by_device.setdefault(vector.device, []).append(index)
        for device, members in by_device.items():
            joined = torch.cat([vectors[i] for i in members])
            self._parts.append((members, *_to_host(joined, device)))

    def ready(self) -> bool:
        """Whether `values` would return without waiting."""
        events = [event for _, _, event in self._parts if event is not None]
        return all(bool(event.query()) for event in events)

    def values(self) -> list[NDArray[np.float64]]:
        """Return the vectors in the order given; waits for the device where it must."""
        result: list[NDArray[np.float64]] = [np.empty(0)] * len(self._sizes)
        for members, host, event in self._parts:
            if event is not None:
                event.synchronize()
            numbers, start = host.numpy(), 0
            for index in members:
                result[index] = numbers[start : start + self._sizes[index]]
                start += self._sizes[index]
        return result


def _to_host(joined: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    if device.type != "cuda":
        return joined.cpu(), None
    host = torch.empty(joined.shape, dtype=joined.dtype, device="cpu", pin_memory=True)
    host.copy_(joined, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return host, event
