"""Run folders that nobody in their right mind records: markup in every name, absurd numbers, far too much of it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.schema import (
    AccumulatorRow,
    CallRow,
    GpuRow,
    MemoryRow,
    ModuleRow,
    OpRow,
    OptimizerRow,
    PaceRow,
    RoundingRow,
    ScalerRow,
    StepRow,
    TensorRow,
    TimingRow,
    TwinRow,
    TwinStepRow,
)
from ampdoctor.trace.writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

HACK = "window.hacked=1;alert(1)"

MARKUP = (
    f"<script>{HACK}</script>",
    f'<img src=x onerror="{HACK}">',
    f"<svg onload='{HACK}'>",
    f"</script><script>{HACK}</script>",
    f'<a href="javascript:{HACK}">click</a>',
    f"[click](javascript:{HACK})",
    f"javascript:{HACK}",
    f"\"'`><b onmouseover={HACK}>",
    f"]]><!--<script>{HACK}//-->",
    f"${{{HACK}}}{{{{constructor.constructor('{HACK}')()}}}}",
    "{name} {0} %(name)s %{customdata[0]} <extra>x</extra>",
    "\u202e\u0000\u2028\u2029\ud7ff\ufeff\u200b",
    "..",
    "../../../etc/passwd",
    "a~b=c&d#e?f",
    "`code` ``` | **bold** $x$",
)
"""What a name may be."""

LONG = "x" * 100_000

NAMES = (*MARKUP, LONG, "", ".", ".weight", "0")

NAN, INF = float("nan"), float("inf")

ODD_FLOATS = (NAN, INF, -INF, 0.0, -0.0, 1e308, -1e308, 5e-324)

ODD_INTS = (0, -1, 2**62, -(2**62), 1)

STEPS = (0, 1, 2, -7, 2**62, 3, 3)
"""Steps as they come: below zero, absurdly high, one of them twice, and not in order."""


def hostile_run(folder: Path) -> Path:
    """Write a run whose names are markup and whose numbers are absurd, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_info(folder, hostile_info())
    writer = TraceWriter(folder)
    for number, step in enumerate(STEPS):
        for table, kind, base in _TABLES:
            rows = [_row(kind, base, step, number + place) for place in range(len(NAMES))]
            writer.append(table, rows[:1] if table == "steps" else rows)
        writer.flush()
    writer.close()
    return folder


def hostile_info() -> RunInfo:
    """Return what run.json says of such a run."""
    return RunInfo(
        status="crashed", started=1e300, ended=-1e300, command=MARKUP, cwd=MARKUP[0], pid=-1, host=MARKUP[1],
        exit_code=2**62, exception=f"ValueError: {''.join(MARKUP)}", degraded=MARKUP[3], git_commit=MARKUP[2],
        world_size=2**40, device=f"cuda: {MARKUP[0]}{MARKUP[1]}", versions={name: name for name in MARKUP},
        precision={name: name for name in MARKUP}, recording={name: [name] for name in MARKUP},
        gpu_telemetry=MARKUP[1],
    )  # fmt: skip


def many_sites(folder: Path, count: int = 100_000) -> Path:
    """Write a run of one step and `count` sites, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_info(folder, RunInfo(status="complete", exit_code=0, device="cpu"))
    writer = TraceWriter(folder)
    writer.append(
        "steps", [_plain(StepRow, step=0, examined=True, wall_ms=10.0, loss=1.0, applied=True, reason="first")]
    )
    base: dict[str, Any] = {
        "step": 0, "shape": [4, 4], "numel": 16, "zeros": 4, "absmax": 1.0, "rms": 0.5, "exp_lowest": -2,
        "exp_counts": [8, 4], "grad_enabled": True, "dtype": "float32",
    }  # fmt: skip
    for start in range(0, count, 5000):
        numbers = range(start, min(start + 5000, count))
        writer.append("tensors", [_plain(TensorRow, module=_module(n), **_role(n), seq=n, **base) for n in numbers])
        writer.append(
            "modules", [_plain(ModuleRow, step=0, module=_module(n), type="Linear", leaf=True) for n in numbers]
        )
        writer.flush()
    memory = {"step": 0, "phase": "forward", "device": "cpu", "component": "activations", "dtype": "float32"}
    timing = {"step": 0, "op": "aten.mm", "direction": "forward", "calls": 1, "host_ms": 0.1, "dtype_out": "float32"}
    writer.append(
        "memory", [_plain(MemoryRow, module=_module(n), bytes=n, kind="aten.mm", **memory) for n in range(count)]
    )
    writer.append("timings", [_plain(TimingRow, module=_module(n), **timing) for n in range(count)])
    writer.close()
    return folder


def _module(number: int) -> str:
    return f"blocks.{number // 1000}.part.{number // 10 % 100}.layer{number % 10}"


def _role(number: int) -> dict[str, str]:
    role = ("weight_grad", "grad_output", "activation", "weight")[number % 4]
    return {"role": role, "slot": "weight" if role.startswith("weight") else "out"}


def _plain(kind: Any, /, **values: Any) -> Any:
    """Return a row with these values; what else it must have is zero or empty."""
    return kind(**{f.name: _empty(str(f.type)) for f in fields(kind) if f.name not in values}, **values)


def _empty(kind: str) -> Any:
    if "None" in kind:
        return None
    return [] if kind.startswith("list") else {"int": 0, "float": 0.0, "bool": False, "str": ""}[kind]


def _row(kind: Any, base: dict[str, Any], step: int, number: int) -> Any:
    """Return a row in which everything is odd but what `base` says, so that it gets as far as the pages."""
    values = {f.name: _odd(str(f.type), number + place) for place, f in enumerate(fields(kind))}
    own = {name: value[number % len(value)] if isinstance(value, tuple) else value for name, value in base.items()}
    return kind(**values | own | {"step": step})


def _odd(kind: str, number: int) -> Any:
    if "None" in kind and number % 5 == 0:
        return None
    kind = kind.split(" |", maxsplit=1)[0]
    if kind.startswith("list"):
        return [_odd(kind[5:-1], number), _odd(kind[5:-1], number + 1)][: number % 3]
    if kind == "bool":
        return bool(number % 2)
    values: tuple[Any, ...] = {"int": ODD_INTS, "float": ODD_FLOATS, "str": NAMES}[kind]
    return values[number % len(values)]


_ROLES = ("weight_grad", "grad_output", "activation", "weight", "update", "optimizer_state", MARKUP[0])
_DTYPES = ("float16", "float32", "bfloat16", MARKUP[1])
_PHASES = ("forward", "backward", "step", "peak")

_TABLES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("steps", StepRow, {"examined": True, "loss": ODD_FLOATS, "loss_scale": ODD_FLOATS}),
    ("tensors", TensorRow, {"role": _ROLES, "dtype": _DTYPES, "exp_counts": ([], [1, 2, 3], [0, 2**40]),
                            "exp_lowest": (-1074, 0, 1000, -20)}),
    ("scaler", ScalerRow, {"event": ("seen", "growth", "backoff", "skip", "step", "unscale", MARKUP[0])}),
    ("calls", CallRow, {"call": ("backward", "scale", "step", "unscale", "clip_norm", "exception", MARKUP[0])}),
    ("ops", OpRow, {}),
    ("twins", TwinRow, {"counterfactual": ("run", "fp32", "bf16", "fp16@2^4", MARKUP[0]),
                        "role": ("gradient", "loss", "weight_grad", MARKUP[1])}),
    ("twin_steps", TwinStepRow, {}),
    ("memory", MemoryRow, {"phase": (*_PHASES, MARKUP[0]), "device": "cpu", "dtype": _DTYPES,
                           "component": ("weights", "activations", "gradients", MARKUP[0], "allocated"),
                           "bytes": (1000, 0, 2**50, 77)}),
    ("timings", TimingRow, {"direction": ("forward", "backward", MARKUP[0]), "host_ms": (1.0, NAN, INF, 0.0)}),
    ("paces", PaceRow, {"setting": ("fp32", "bf16", MARKUP[0]), "wall_ms": (1.0, NAN, INF)}),
    ("gpu", GpuRow, {"time": (0.0, NAN, INF, 5.0)}),
    ("modules", ModuleRow, {}),
    ("optimizers", OptimizerRow, {}),
    ("roundings", RoundingRow, {}),
    ("accumulators", AccumulatorRow, {}),
)  # fmt: skip
"""The tables, with what must be sound for a row to be looked at; a tuple gives its values in turn."""
