"""A thread that looks at the GPUs once a second. The training neither waits for it nor learns of its errors."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.guard import told
from ampdoctor.record.headroom import cuda_in_use
from ampdoctor.record.telemetry.nvml import NoAnswerError, Nvml
from ampdoctor.record.telemetry.visible import by_torch, by_variable
from ampdoctor.trace.schema import GpuRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.telemetry.visible import Placed

VARIABLE = "AMPDOCTOR_GPU_TELEMETRY"
"""Environment variable: 0 for no telemetry, 1 for it also where torch does not use CUDA."""

INTERVAL_S = 1.0

SAMPLED = "sampled"

_PATIENCE_S = 0.5
"""Seconds that the end of a training may take for a look that is under way: some calls take tens of milliseconds."""


class _Torch(NamedTuple):
    """What torch says of the devices that it sees; taken on the thread that trains."""

    uuids: tuple[str, ...] | None = None
    visible: int | None = None
    current: int | None = None


class GpuTelemetry:
    """Samples the GPUs from `begin` to `stop`.

    Args:
        hand_over: takes the rows of one look; called on the sampling thread.
        step: returns the step under way.
        interval_s: seconds between two looks.

    Attributes:
        said: `sampled`, or why there is nothing, or nothing any more; None before anything is known.
    """

    def __init__(
        self, hand_over: Callable[[list[GpuRow]], None], step: Callable[[], int], interval_s: float | None = None
    ) -> None:
        self.said: str | None = None
        self._hand_over, self._step = hand_over, step
        self._interval = INTERVAL_S if interval_s is None else interval_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, where the training uses CUDA or the environment asks for it."""
        asked = os.environ.get(VARIABLE, "")
        if asked == "0" or not (asked or cuda_in_use()) or self._thread is not None:
            return
        try:
            thread = threading.Thread(target=self._work, args=(_asked_of_torch(),), name="ampdoctor-gpu", daemon=True)
            thread.start()
        except Exception as error:  # noqa: BLE001 - the interpreter is about to end, for instance; the recording goes on
            self.said = f"not begun: {told(error)}"
        else:
            self._thread = thread

    def stop(self) -> None:
        """End it, and wait for a look that is under way; not for one that hangs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        if thread is not threading.current_thread():
            thread.join(_PATIENCE_S)
        if thread.is_alive():
            began = (self.said or "").startswith(SAMPLED)
            self.said = "ended: NVML did not answer" if began else "no NVML: it had not answered by the end"

    def disown(self) -> None:
        """In a forked child, where there is no such thread: touch nothing that it may have held locked."""
        self._thread = None

    def _work(self, seen: _Torch) -> None:
        try:
            nvml = Nvml()
        except Exception as error:  # noqa: BLE001 - no GPU figures, and that is all
            self.said = f"no NVML: {told(error)}"
            return
        try:
            self._sample(nvml, seen)
        except Exception as error:  # noqa: BLE001 - no more GPU figures, and that is all
            self.said = f"ended: {told(error)}"
        finally:
            with suppress(Exception):
                nvml.close()

    def _sample(self, nvml: Nvml, seen: _Torch) -> None:
        devices = _visible(nvml, seen)
        if not devices:
            variables = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
            told_by = ", ".join(f"{name}={os.environ[name]}" for name in variables if name in os.environ)
            self.said = "no GPU: NVML lists none of those that torch sees" + (f" ({told_by})" if told_by else "")
            return
        said = SAMPLED
        while not self._ended.is_set():
            rows: list[GpuRow] = []
            for placed in tuple(devices):
                try:
                    rows.append(self._look(nvml, placed, seen.current))
                except NoAnswerError as error:
                    devices.remove(placed)
                    if not devices:
                        raise
                    said += f", but for {placed.device.uuid}: {error}"
            self._hand_over(rows)
            self.said = said
            self._ended.wait(self._interval)

    def _look(self, nvml: Nvml, placed: Placed, current: int | None) -> GpuRow:
        index, device = placed
        return GpuRow(
            time=time.time(), step=self._step(), device=index, uuid=device.uuid, name=device.name, mig=device.mig,
            current=None if index is None or current is None else index == current, gpu_instance=device.gpu_instance,
            compute_instance=device.compute_instance, **nvml.figures(device),
        )  # fmt: skip


def _visible(nvml: Nvml, seen: _Torch) -> list[Placed]:
    """Return the devices of this process: as torch's own UUIDs say, or else by the variables that CUDA goes by."""
    gpus = nvml.gpus()
    placed = None if seen.uuids is None else by_torch(gpus, seen.uuids)
    if placed is None:
        placed = by_variable(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
        placed = placed[: seen.visible]
    return [p for p in placed if p.device.handle is not None]


def _asked_of_torch() -> _Torch:
    """No CUDA context is made for this: properties are read without one."""
    if not cuda_in_use():
        return _Torch()
    visible = torch.cuda.device_count()
    uuids = [getattr(torch.cuda.get_device_properties(index), "uuid", None) for index in range(visible)]
    known = None if None in uuids else tuple(str(uuid) for uuid in uuids)
    return _Torch(known, visible, torch.cuda.current_device())
