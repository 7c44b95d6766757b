"""A run as large as one likes, as the recorder would have written it: an FP16 training whose gradients sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ampdoctor.formats import FP16
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import TraceWriter, prepare_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

PARTS = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj", "mlp.up")
LAYERS = 100
MODULES = tuple(f"decoder.layers.{n}.{part}" for n in range(LAYERS) for part in PARTS)
ROLES = ("activation", "grad_output", "weight", "weight_grad")
SITES = len(MODULES) * len(ROLES)
EVERY = 10
"""Steps from one examined step to the next."""

NUMEL = 4096
CENTRES = {"activation": -1.0, "grad_output": -19.0, "weight": -5.0, "weight_grad": -18.0}
"""Where the elements of each role lie at first, log2."""

SPREAD = 2.5
SINKS = 4.0
"""Binades by which gradients get smaller over the run."""

LOSS_SCALE = 2.0**10
TWIN_EVERY = 50
"""Examined steps from one twin step to the next."""


def write_run(folder: Path, rows: int) -> int:
    """Write a run with about `rows` rows of tensors to `folder`; returns how many steps were examined."""
    prepare_folder(folder)
    write_info(folder, RunInfo(status="complete", exit_code=0, device="cuda: NVIDIA A100"))
    examined = max(rows // SITES, 1)
    writer = TraceWriter(folder)
    writer.append_batch("modules", _batch("modules", _modules()))
    writer.append_batch("steps", _batch("steps", _steps(examined * EVERY)))
    for number in range(examined):
        sunk = SINKS * number / examined
        writer.append_batch("tensors", _batch("tensors", _tensors(number * EVERY, sunk)))
        if number % TWIN_EVERY == 0:
            writer.append_batch("twins", _batch("twins", _twins(number * EVERY, sunk)))
        writer.flush()
    writer.close()
    return examined


def _batch(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the columns in the schema of a table; those that are not given are null, zero or empty."""
    schema = TABLES[table].arrow
    length = len(columns["step"])
    arrays = []
    for field in schema:
        if field.name in columns:
            given = columns[field.name]
            arrays.append(given if isinstance(given, pa.Array) else pa.array(given, type=field.type))
        elif field.nullable:
            arrays.append(pa.nulls(length, field.type))
        else:
            zero: Any = [] if pa.types.is_list(field.type) else {"string": "", "bool": False}.get(str(field.type), 0)
            arrays.append(pa.array([zero] * length, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lists(values: NDArray[np.int64]) -> pa.Array:
    ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel()))


def _steps(steps: int) -> dict[str, Any]:
    number = np.arange(steps)
    noise = np.random.default_rng(1).normal(size=steps) * 0.05
    return {
        "step": number, "time": 1.7e9 + number * 0.1, "wall_ms": 100.0 + 5.0 * noise,
        "micro_batches": np.ones(steps, int), "loss": 2.0 + 8.0 / (1.0 + number / 100.0) + noise,
        "loss_scale": np.full(steps, LOSS_SCALE), "found_inf": np.zeros(steps, bool), "applied": np.ones(steps, bool),
        "lr": np.full(steps, 1e-3), "grad_norm": 1.0 + noise, "examined": number % EVERY == 0,
        "reason": ["interval" if n % EVERY == 0 else None for n in range(steps)],
    }  # fmt: skip


def _modules() -> dict[str, Any]:
    count = len(MODULES)
    return {
        "step": np.zeros(count, int), "module": list(MODULES), "type": ["Linear"] * count, "leaf": [True] * count,
        "parameters": [NUMEL] * count, "trainable": [NUMEL] * count, "dtypes": [["float32"]] * count,
        "optimizer": ["optimizer0"] * count, "training": [True] * count,
    }  # fmt: skip


_BINS = np.arange(-32, 8)
"""Exponents that are recorded; the last holds what lies above it too, the first what lies below."""


def _histograms(centres: NDArray[np.float64], step: int) -> NDArray[np.int64]:
    """Return how many elements of each tensor lie in each of `_BINS`: lognormals, drawn."""
    random = np.random.default_rng(step)
    shares = np.exp(-0.5 * ((_BINS + 0.5 - centres[:, None]) / SPREAD) ** 2) + 1e-300
    expected = NUMEL * shares / shares.sum(axis=1, keepdims=True)
    counts: NDArray[np.int64] = np.floor(expected + random.random(expected.shape)).astype(np.int64)
    return counts


def _centres(sunk: float) -> NDArray[np.float64]:
    """Return where each site's elements lie: deeper layers' gradients are smaller."""
    depth = np.repeat(np.arange(len(MODULES)) / len(MODULES), len(ROLES))
    first = np.tile([CENTRES[role] for role in ROLES], len(MODULES))
    gradient = np.tile([1.0 if "grad" in role else 0.0 for role in ROLES], len(MODULES))
    centres: NDArray[np.float64] = first + gradient * (3.0 * depth - sunk)
    return centres


def _tensors(step: int, sunk: float) -> dict[str, Any]:
    counts = _histograms(_centres(sunk), step)
    lost = FP16.min_subnormal_exponent > _BINS
    halved = np.tile([True, True, False, True], len(MODULES))
    zeros = np.where(halved, counts[:, lost].sum(axis=1), 0)
    kept = np.where(halved[:, None] & lost, 0, counts)
    shown = kept[:, ~lost]
    subnormal = np.where(halved, kept[:, FP16.min_exponent > _BINS].sum(axis=1), 0)
    top = np.max(np.where(kept > 0, _BINS, _BINS[0]), axis=1)
    squares = (kept * 4.0 ** (_BINS + 0.5)).sum(axis=1)
    return {
        "step": np.full(SITES, step), "seq": np.arange(SITES), "module": np.repeat(MODULES, len(ROLES)).tolist(),
        "role": list(ROLES) * len(MODULES), "slot": ["out", "out", "weight", "weight"] * len(MODULES),
        "dtype": ["float16", "float16", "float32", "float32"] * len(MODULES),
        "shape": _lists(np.full((SITES, 2), 64)), "numel": shown.sum(axis=1) + zeros, "zeros": zeros,
        "subnormal": subnormal, "absmax": 1.5 * 2.0**top, "rms": np.sqrt(squares / NUMEL),
        "exp_lowest": np.full(SITES, int(_BINS[~lost][0])), "exp_counts": _lists(shown),
        "loss_scale": [None, LOSS_SCALE, None, LOSS_SCALE] * len(MODULES),
        "autocast": ["float16", "float16", None, None] * len(MODULES), "grad_enabled": np.ones(SITES, bool),
        "inputs_finite": [True, None, None, None] * len(MODULES),
    }  # fmt: skip


def _twins(step: int, sunk: float) -> dict[str, Any]:
    """Return what FP32 made of the weight gradients, and what the run did."""
    counts = _histograms(_centres(sunk), step)[3 :: len(ROLES)]
    flushed = counts[:, FP16.min_subnormal_exponent > _BINS].sum(axis=1)
    nonzero = counts.sum(axis=1)
    count = len(MODULES)
    lists = _lists(counts)
    empty = pa.nulls(count, lists.type)
    scale = int(np.log2(LOSS_SCALE))
    return {
        "step": np.full(2 * count, step), "seq": np.arange(2 * count), "counterfactual": ["run", "fp32"] * count,
        "fp32_modules": _lists(np.zeros((2 * count, 0), np.int64)).cast(pa.list_(pa.string())),
        "role": ["weight_grad"] * (2 * count), "module": np.repeat(MODULES, 2).tolist(),
        "slot": ["weight"] * (2 * count), "shape": _lists(np.full((2 * count, 2), 64)),
        "numel": np.repeat(nonzero, 2), "nonzero": np.repeat(nonzero, 2),
        "flushed": np.column_stack([flushed, np.zeros(count, int)]).ravel(),
        "cosine": np.column_stack([1.0 - flushed / nonzero, np.ones(count)]).ravel(),
        "norm_ratio": np.ones(2 * count), "sum_squares_fp32": np.ones(2 * count), "absmax": np.ones(2 * count),
        "exp_lowest": pa.array([None, int(_BINS[0]) - scale] * count, pa.int64()),
        "exp_counts": pa.concat_arrays([empty, lists]).take(pa.array(np.arange(2 * count).reshape(2, -1).T.ravel())),
    }  # fmt: skip
