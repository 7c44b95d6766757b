"""Build a small `Run` in memory in a few lines: for the examples of the rules, and for tests.

Every method adds rows and returns the builder, so that a run reads as what happened:

    RunBuilder().step(loss=2.3).grad("head", zeros=90, exponents={-24: 10}, dtype="float16").build()
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ampdoctor.formats import format_of_dtype
from ampdoctor.histogram import ExponentHistogram
from ampdoctor.trace.info import RunInfo
from ampdoctor.trace.run import Run
from ampdoctor.trace.schema import (
    TABLES,
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

if TYPE_CHECKING:
    from collections.abc import Mapping


class RunBuilder:
    """Collects rows step by step. `step` opens the next step; everything after it belongs to that step."""

    def __init__(self, **info: Any) -> None:
        self._info = replace(RunInfo(status="complete", exit_code=0), **info)
        self._rows: dict[str, list[Any]] = {name: [] for name in TABLES}
        self._others: tuple[RunBuilder, ...] = ()
        self._step = -1
        self._seq = 0
        self._micro_batch = 0

    def step(self, **columns: Any) -> RunBuilder:
        """Open the next step; `columns` override those of its row in `steps`."""
        self._step += 1
        self._seq = self._micro_batch = 0
        values: dict[str, Any] = {
            "step": self._step, "time": float(self._step), "wall_ms": 10.0, "micro_batches": 1, "applied": True,
            "examined": True, "reason": "first",
        }  # fmt: skip
        self._rows["steps"].append(StepRow(**(values | columns)))
        return self

    def tensor(
        self,
        module: str,
        role: str,
        *,
        slot: str = "out",
        dtype: str = "float32",
        exponents: Mapping[int, int] | None = None,
        **columns: Any,
    ) -> RunBuilder:
        """Add a tensor whose nonzero elements have the given {exponent: count}; other columns as in the schema."""
        counts = dict(exponents or {})
        lowest = min(counts, default=0)
        dense = [counts.get(e, 0) for e in range(lowest, max(counts, default=-1) + 1)]
        outside = {name: columns.get(name, 0) for name in ("zeros", "nan", "posinf", "neginf")}
        numel = sum(dense) + sum(outside.values())
        edge = _min_exponent(dtype)
        energy = sum(n * 4.0**e for e, n in counts.items())
        finite = sum(dense) + outside["zeros"]
        values: dict[str, Any] = {
            "step": self._step, "micro_batch": self._micro_batch, "seq": self._next(), "module": module, "role": role,
            "slot": slot, "call": 0, "dtype": dtype, "shape": [numel], "numel": numel, **outside,
            "subnormal": sum(n for e, n in counts.items() if e < edge), "absmax": 2.0 ** max(counts) if counts else 0.0,
            "rms": (energy / finite) ** 0.5 if finite else 0.0, "exp_lowest": lowest, "exp_counts": dense,
            "grad_enabled": True,
        }  # fmt: skip
        self._rows["tensors"].append(TensorRow(**(values | columns)))
        return self

    def values(self, module: str, role: str, values: Any, **columns: Any) -> RunBuilder:
        """Add a tensor that holds `values` (anything numpy takes)."""
        h = ExponentHistogram.from_values(values)
        exponents = {int(e): int(n) for e, n in zip(h.exponents, h.counts, strict=True) if n}
        outside = {"zeros": h.zeros, "nan": h.nan, "posinf": h.posinf, "neginf": h.neginf}
        exact = {"absmax": h.absmax, "rms": h.rms}
        return self.tensor(module, role, exponents=exponents, **(outside | exact | columns))

    def call(self, call: str, **columns: Any) -> RunBuilder:
        """Add a call; `backward` also ends the micro-batch."""
        base: dict[str, Any] = {
            "step": self._step, "micro_batch": self._micro_batch, "seq": self._next(), "call": call,
        }  # fmt: skip
        self._rows["calls"].append(CallRow(**(base | columns)))
        if call == "backward":
            self._micro_batch += 1
        return self

    def scaler(self, event: str, **columns: Any) -> RunBuilder:
        """Add a scaler event (the scaler is called scaler0 unless told otherwise)."""
        base: dict[str, Any] = {
            "step": self._step, "seq": self._next(), "scaler": "scaler0", "event": event,
        }  # fmt: skip
        self._rows["scaler"].append(ScalerRow(**(base | columns)))
        return self

    def module(self, module: str, **columns: Any) -> RunBuilder:
        """Add a module (an FP32 Linear leaf unless told otherwise)."""
        base: dict[str, Any] = {
            "step": max(self._step, 0), "module": module, "type": "Linear", "leaf": True, "parameters": 100,
            "trainable": 100, "dtypes": ["float32"], "optimizer": "optimizer0", "training": True,
        }  # fmt: skip
        self._rows["modules"].append(ModuleRow(**(base | columns)))
        return self

    def optimizer(self, kind: str = "AdamW", **columns: Any) -> RunBuilder:
        """Add a parameter group (group 0 of optimizer0 unless told otherwise)."""
        base: dict[str, Any] = {
            "step": max(self._step, 0), "optimizer": "optimizer0", "type": kind, "group": 0, "lr": 1e-3,
            "parameters": 2, "numel": 100, "dtypes": ["float32"],
        }  # fmt: skip
        self._rows["optimizers"].append(OptimizerRow(**(base | columns)))
        return self

    def twin_step(self, *counterfactuals: str, **columns: Any) -> RunBuilder:
        """Say that a second opinion was given on this step (a carried one unless told otherwise)."""
        base: dict[str, Any] = {
            "step": self._step, "kind": "carried", "reason": "first", "counterfactuals": list(counterfactuals),
            "not_twinned": [], "operations": 100, "eager": False,
        }  # fmt: skip
        self._rows["twin_steps"].append(TwinStepRow(**(base | columns)))
        return self

    def twin(self, counterfactual: str, module: str, role: str, **columns: Any) -> RunBuilder:
        """Add what a twin measured of one tensor: 100 elements as in FP32 unless told otherwise."""
        base: dict[str, Any] = {
            "step": self._step, "seq": self._next(), "counterfactual": counterfactual, "fp32_modules": [],
            "role": role, "module": module, "slot": "" if role in {"gradient", "loss"} else "weight", "call": 0,
            "shape": [100], "numel": 100, "nonzero": 100, "flushed": 0, "subnormal": 0, "overflowed": 0,
            "nonfinite": 0, "nonfinite_fp32": 0, "cosine": 1.0, "norm_ratio": 1.0, "energy_lost": 0.0,
            "sum_squares_fp32": 1.0, "absmax": 0.5,
        }  # fmt: skip
        self._rows["twins"].append(TwinRow(**(base | columns)))
        return self

    def op(self, op: str, module: str = "", **columns: Any) -> RunBuilder:
        """Add what a local twin measured of one operation: 100 FP16 elements without loss unless told otherwise."""
        base: dict[str, Any] = {
            "step": self._step, "micro_batch": self._micro_batch, "seq": self._next(), "module": module, "op": op,
            "direction": "forward", "dtype_in": "float16", "dtype_out": "float16", "source": "live", "calls": 1,
            "numel": 100, "nonzero": 100, "flushed": 0, "overflowed": 0, "born": 0, "born_fp32": 0, "absmax": 1.0,
        }  # fmt: skip
        self._rows["ops"].append(OpRow(**(base | columns)))
        return self

    def memory(self, phase: str, component: str, size: int, **columns: Any) -> RunBuilder:
        """Add what lived at a moment of the step: `size` bytes of FP32 in one storage unless told otherwise."""
        base: dict[str, Any] = {
            "step": self._step, "phase": phase, "device": "cpu", "component": component, "dtype": "float32",
            "bytes": size, "storages": 1,
        }  # fmt: skip
        self._rows["memory"].append(MemoryRow(**(base | columns)))
        return self

    def timing(self, op: str, module: str | None = None, **columns: Any) -> RunBuilder:
        """Add how long operations took: one of the forward pass, a millisecond, in FP32 unless told otherwise."""
        base: dict[str, Any] = {
            "step": self._step, "module": module, "op": op, "direction": "forward", "dtype_in": "float32",
            "dtype_out": "float32", "calls": 1, "host_ms": 1.0, "numel": 100, "misaligned": 0,
        }  # fmt: skip
        self._rows["timings"].append(TimingRow(**(base | columns)))
        return self

    def pace(self, setting: str, **columns: Any) -> RunBuilder:
        """Say how long the step's modules took in one precision."""
        base: dict[str, Any] = {"step": self._step, "setting": setting, "own": False, "device": "cpu", "rounds": 3}
        self._rows["paces"].append(PaceRow(**(base | columns)))
        return self

    def rounding(self, kind: str, **columns: Any) -> RunBuilder:
        """Add a place where numbers were rounded (a cast of 100 to BF16), or say that the step was watched."""
        base: dict[str, Any] = {
            "step": self._step, "seq": self._next(), "kind": kind, "module": "", "op": "aten._to_copy",
            "dtype_in": "int64", "dtype_out": "bfloat16", "calls": 1, "numel": 100,
        }  # fmt: skip
        self._rows["roundings"].append(RoundingRow(**(base | columns)))
        return self

    def accumulator(self, kind: str, **columns: Any) -> RunBuilder:
        """Add what was seen of a BF16 total: 100 elements that all took what was added, unless told otherwise."""
        base: dict[str, Any] = {
            "step": self._step, "op": "add", "kind": kind, "dtype": "bfloat16", "calls": 1, "numel": 100,
            "nonzero": 100, "absorbed": 0, "absmax": 1.0, "lasting": True, "compensated": False,
        }  # fmt: skip
        self._rows["accumulators"].append(AccumulatorRow(**(base | columns)))
        return self

    def gpu(self, **columns: Any) -> RunBuilder:
        """Add a look at the GPU that trains (torch's current device unless told otherwise)."""
        base: dict[str, Any] = {
            "step": self._step, "time": float(self._step), "device": 0, "current": True, "uuid": "GPU-0", "mig": False,
        }  # fmt: skip
        self._rows["gpu"].append(GpuRow(**(base | columns)))
        return self

    def beside(self, *others: RunBuilder) -> RunBuilder:
        """Say what the other ranks recorded, from rank 1 on."""
        self._others = others
        return self

    def build(self) -> Run:
        """Return the run."""
        tables = {
            name: pa.Table.from_pylist([vars(row) for row in rows], schema=TABLES[name].arrow)
            for name, rows in self._rows.items()
        }
        others = [other.build() for other in self._others]
        run = Run(
            self._info, lambda name: (tables[name], []), None, tuple(range(1 + len(others))),
            lambda rank: others[rank - 1] if rank else run,
        )  # fmt: skip
        return run

    def _next(self) -> int:
        self._seq += 1
        return self._seq - 1


def _min_exponent(dtype: str) -> int:
    number_format = format_of_dtype(dtype)
    return number_format.min_exponent if number_format else -(10**6)
