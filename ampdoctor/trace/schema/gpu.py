"""The table of what the driver says of the GPUs that train."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, INT, STRING, STRINGS, nullable, required, table


@table("gpu")
@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """One look at one GPU through NVML, about one a second; null is what NVML does not say of this one.

    Only GPUs that the training process can see are looked at. Why there are no rows is in run.json (gpu_telemetry).
    """

    step: int = required(INT, "Step under way.")
    time: float = required(FLOAT, "When, seconds since the epoch.", "s")
    device: int | None = nullable(INT, "torch's index of it (cuda:0); null where that can't be told.")
    current: bool | None = nullable(
        BOOL, "It was torch's current device as sampling began: that of allocated_bytes and peak_bytes in steps."
    )
    uuid: str | None = nullable(STRING, "UUID, as CUDA_VISIBLE_DEVICES takes it (GPU-…, MIG-…).")
    name: str | None = nullable(STRING, "Name of the product.")
    mig: bool = required(
        BOOL, "It is a MIG instance: memory is its own; power, temperature, clocks and throttle are the whole GPU's."
    )
    gpu_instance: int | None = nullable(INT, "MIG: id of the GPU instance.")
    compute_instance: int | None = nullable(INT, "MIG: id of the compute instance.")
    memory_used_bytes: int | None = nullable(
        INT, "Memory in use, by all processes and the driver, torch's cache included.", "bytes"
    )
    memory_total_bytes: int | None = nullable(INT, "Memory that there is.", "bytes")
    process_bytes: int | None = nullable(
        INT, "Memory of the training process, CUDA context included; null in most containers, which hide it.", "bytes"
    )
    processes: int | None = nullable(INT, "Processes that compute on it, as far as they are shown.")
    utilization: float | None = nullable(FLOAT, "Share of the last moments in which a kernel was running.", "share")
    memory_utilization: float | None = nullable(
        FLOAT, "Share of them in which its memory was read or written.", "share"
    )
    power_w: float | None = nullable(FLOAT, "Power drawn.", "W")
    power_limit_w: float | None = nullable(FLOAT, "Power limit in force.", "W")
    power_default_w: float | None = nullable(FLOAT, "Power limit that the GPU is sold with.", "W")
    temperature_c: float | None = nullable(FLOAT, "Temperature of the chip.", "°C")
    sm_clock_mhz: float | None = nullable(FLOAT, "Clock of the multiprocessors.", "MHz")
    max_sm_clock_mhz: float | None = nullable(FLOAT, "The highest that it can have.", "MHz")
    throttle: list[str] | None = nullable(
        STRINGS,
        "Why the clock is not higher: gpu_idle, applications_clocks_setting, sw_power_cap, hw_slowdown, sync_boost, "
        "sw_thermal_slowdown, hw_thermal_slowdown, hw_power_brake_slowdown, display_clock_setting, or bit_9 and so on.",
    )
