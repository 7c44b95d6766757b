"""How long a diagnosis takes on a long run, and the memory that it needs.

    python -m benchmarks.diagnosis [--rows 10000000] [--folder FOLDER]

A run is written as the recorder writes one: a batch of `tensors` per examined step, and every step's calls and scaler
events. Then `ampdoctor diagnose` judges it in a process of its own, whose time and largest resident memory are printed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import prepare_folder, table_path

SITES = 500
ROLES = ("activation", "grad_output", "weight", "weight_grad")
EVERY = 10
"""Steps from one examined step to the next."""

CALLS = ("zero_grad", "scale", "backward", "unscale", "clip_norm", "scaler_step", "update")
EXPONENTS = 24


def write_long_run(folder: Path, rows: int) -> int:
    """Write a healthy FP16 run with `rows` tensor rows; returns its number of steps."""
    prepare_folder(folder)
    write_info(folder, RunInfo(status="complete", exit_code=0, device="cuda: NVIDIA A100"))
    examined = rows // (SITES * len(ROLES))
    steps = examined * EVERY
    _write(folder, "steps", [_steps(steps)])
    _write(folder, "calls", [_calls(steps)])
    _write(folder, "scaler", [_scaler(steps)])
    _write(folder, "modules", [_modules()])
    _write(folder, "tensors", (_tensors(step) for step in range(0, steps, EVERY)))
    return steps


def _write(folder: Path, table: str, batches: object) -> None:
    schema = TABLES[table].arrow
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(str(table_path(folder, table)), schema, options=options) as stream:
        for columns in batches:  # type: ignore[attr-defined]
            length = len(next(iter(columns.values())))
            arrays = [
                pa.array(columns[f.name], type=f.type) if f.name in columns else _default(f, length) for f in schema
            ]
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _default(field: pa.Field, length: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(length, field.type)
    zero = {"string": "", "bool": False}.get(str(field.type), 0)
    return pa.array([[] if pa.types.is_list(field.type) else zero] * length, type=field.type)


def _steps(steps: int) -> dict[str, object]:
    number = np.arange(steps)
    return {
        "step": number, "time": number * 0.1, "wall_ms": np.full(steps, 100.0), "micro_batches": np.ones(steps, int),
        "loss": 2.0 + 8.0 / (1.0 + number / 100.0), "loss_scale": np.full(steps, 2.0**16),
        "found_inf": np.zeros(steps, bool), "applied": np.ones(steps, bool), "lr": np.full(steps, 1e-3),
        "examined": number % EVERY == 0,
        "reason": ["interval" if n % EVERY == 0 else None for n in range(steps)],
    }  # fmt: skip


def _calls(steps: int) -> dict[str, object]:
    count = len(CALLS)
    return {
        "step": np.repeat(np.arange(steps), count), "seq": np.tile(np.arange(count), steps),
        "micro_batch": np.tile([0, 0, 0, 1, 1, 1, 1], steps), "call": list(CALLS) * steps,
        "target": ["optimizer0", "scaler0", None, "optimizer0", "optimizer0", "optimizer0", "scaler0"] * steps,
        "file": ["train.py"] * (count * steps), "line": np.tile(np.arange(10, 10 + count), steps),
        "scaled": [None, None, "all", None, None, None, None] * steps,
        "factor": [None, None, 1.0, None, None, None, None] * steps,
        "limit": [None, None, None, None, 1.0, None, None] * steps,
        "norm": [None, None, None, None, 0.7, None, None] * steps,
    }  # fmt: skip


def _scaler(steps: int) -> dict[str, object]:
    return {
        "step": np.repeat(np.arange(steps), 2), "seq": np.tile([7, 8], steps), "scaler": ["scaler0"] * (2 * steps),
        "event": ["step", "hold"] * steps, "optimizer": ["optimizer0", None] * steps,
        "scale": np.full(2 * steps, 2.0**16), "scale_after": [None, 2.0**16] * steps,
        "found_inf": [False, None] * steps,
    }  # fmt: skip


def _modules() -> dict[str, object]:
    return {
        "step": np.zeros(SITES, int), "module": [f"layers.{n}.linear" for n in range(SITES)],
        "type": ["Linear"] * SITES, "leaf": [True] * SITES, "parameters": [1024] * SITES, "trainable": [1024] * SITES,
        "dtypes": [["float32"]] * SITES, "optimizer": ["optimizer0"] * SITES, "training": [True] * SITES,
    }  # fmt: skip


def _tensors(step: int) -> dict[str, object]:
    count = SITES * len(ROLES)
    half = [role in {"activation", "grad_output"} for role in ROLES]
    random = np.random.default_rng(step)
    counts = random.integers(1, 200, (count, EXPONENTS))
    slots = ["out", "out", "weight", "weight"]
    return {
        "step": np.full(count, step), "seq": np.arange(count),
        "module": [f"layers.{n}.linear" for n in range(SITES) for _ in ROLES], "role": list(ROLES) * SITES,
        "slot": slots * SITES, "dtype": ["float16" if h else "float32" for h in half] * SITES,
        "shape": [[32, 32]] * count, "numel": counts.sum(axis=1), "absmax": np.full(count, 8.0),
        "rms": random.random(count), "exp_lowest": np.full(count, EXPONENTS * -1 + 3), "exp_counts": list(counts),
        "loss_scale": [None, 2.0**16, None, 2.0**16] * SITES,
        "autocast": ["float16", "float16", None, None] * SITES, "grad_enabled": [True] * count,
        "inputs_finite": [True, None, None, None] * SITES,
    }  # fmt: skip


def main() -> None:
    """Write the run, judge it and print what it took."""
    parser = argparse.ArgumentParser(description="How long a diagnosis takes on a long run.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="keep the run here; judge it again if it is there")
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "run"
        if not folder.exists():
            steps = write_long_run(folder, options.rows)
            print(f"{options.rows} tensor rows, {steps} steps, {_megabytes(folder):.0f} MB")
        began = time.perf_counter()
        judged = subprocess.run(
            [sys.executable, "-m", "ampdoctor", "diagnose", str(folder)], check=False, text=True, capture_output=True
        )
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(judged.stdout[-2500:], judged.stderr[-2000:])
    print(f"{seconds:.1f} s, {peak:.2f} GB, exit code {judged.returncode}")


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


if __name__ == "__main__":
    main()
