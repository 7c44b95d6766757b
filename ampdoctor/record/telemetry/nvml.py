"""NVML through its Python binding, pynvml: which GPUs there are, and how each of them is."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ampdoctor.record.telemetry.visible import Device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip
"""Why clocks are low, by bit: nvml.h, nvmlClocksEventReason…, in the words of nvidia-smi."""

_SM_CLOCK = 1
_CHIP = 0
"""NVML_CLOCK_SM and NVML_TEMPERATURE_GPU of nvml.h."""


class NoAnswerError(Exception):
    """NVML says nothing of a device any more."""


class Nvml:
    """NVML, opened.

    Raises:
        ImportError: the binding is not installed.
        Exception: pynvml.NVMLError, where there is no library, no driver, or no permission.
    """

    def __init__(self) -> None:
        self._api: Any = import_module("pynvml")
        self._api.nvmlInit()
        self._refusal = "nothing was answered"

    def close(self) -> None:
        """Let go of it."""
        self._api.nvmlShutdown()

    def gpus(self) -> list[Device]:
        """Return all GPUs of the machine, with their MIG instances, in the order of the bus.

        Raises:
            Exception: pynvml.NVMLError, where they can't be counted.
        """
        return [self._gpu(index) for index in range(self._api.nvmlDeviceGetCount())]

    def figures(self, device: Device) -> dict[str, Any]:
        """Return the columns of `gpu` that NVML can tell of a device.

        Raises:
            NoAnswerError: it can tell none.
        """
        found = dict(self._figures(device, device.gpu if device.mig else device.handle))
        if all(value is None for value in found.values()):
            raise NoAnswerError(self._refusal)
        return found

    def _gpu(self, index: int) -> Device:
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:  # one that this process may not touch; those behind it keep their places
            return Device(None)
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        instances = tuple(self._instances(handle)) if mode and mode[0] else ()
        return Device(self._text("nvmlDeviceGetUUID", handle), self._text("nvmlDeviceGetName", handle), handle,
                      instances=instances)  # fmt: skip

    def _instances(self, gpu: Any) -> Iterator[Device]:
        for index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
            if handle is not None:  # of at most seven, few may have been made
                name = self._text("nvmlDeviceGetName", handle) or self._text("nvmlDeviceGetName", gpu)
                ids = (self._ask(f"nvmlDeviceGet{kind}InstanceId", handle) for kind in ("Gpu", "Compute"))
                yield Device(self._text("nvmlDeviceGetUUID", handle), name, handle, gpu, *ids)

    def _figures(self, device: Device, whole: Any) -> Iterator[tuple[str, Any]]:
        memory = self._ask("nvmlDeviceGetMemoryInfo", device.handle)
        yield "memory_used_bytes", memory and memory.used
        yield "memory_total_bytes", memory and memory.total
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", device.handle)
        yield "processes", None if processes is None else len(processes)
        own = next((p.usedGpuMemory for p in processes or () if p.pid == os.getpid()), None)
        # Some bindings and drivers disagree on the list's layout: what can't be is not told.
        yield "process_bytes", None if own is None or (memory and own > memory.total) else own
        rates = self._ask("nvmlDeviceGetUtilizationRates", device.handle)
        yield "utilization", rates and rates.gpu / 100
        yield "memory_utilization", rates and rates.memory / 100
        yield "power_w", self._scaled(1e-3, "nvmlDeviceGetPowerUsage", whole)
        yield "power_limit_w", self._scaled(1e-3, "nvmlDeviceGetEnforcedPowerLimit", whole)
        yield "power_default_w", self._scaled(1e-3, "nvmlDeviceGetPowerManagementDefaultLimit", whole)
        yield "temperature_c", self._scaled(1.0, "nvmlDeviceGetTemperature", whole, _CHIP)
        yield "sm_clock_mhz", self._scaled(1.0, "nvmlDeviceGetClockInfo", whole, _SM_CLOCK)
        yield "max_sm_clock_mhz", self._scaled(1.0, "nvmlDeviceGetMaxClockInfo", whole, _SM_CLOCK)
        yield "throttle", self._throttle(whole)

    def _throttle(self, whole: Any) -> list[str] | None:
        # Drivers before 535 know it by its older name.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        bits = next((bits for name in names if (bits := self._ask(name, whole)) is not None), None)
        if bits is None:
            return None
        set_bits = [bit for bit in range(bits.bit_length()) if bits >> bit & 1]
        return [_REASONS[bit] if bit < len(_REASONS) else f"bit_{bit}" for bit in set_bits]

    def _scaled(self, unit: float, function: str, *arguments: Any) -> float | None:
        value = self._ask(function, *arguments)
        return None if value is None else unit * value

    def _text(self, function: str, handle: Any) -> str | None:
        value = self._ask(function, handle)
        return value.decode(errors="replace") if isinstance(value, bytes) else value  # as old bindings give it

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Return what NVML says, or None: it knows less of some devices, drivers and containers than of others."""
        asked: Callable[..., Any] | None = getattr(self._api, function, None)
        if asked is None:
            return None
        try:
            return asked(*arguments)
        except self._api.NVMLError as error:
            self._refusal = str(error)
            return None
