"""The precision that a run really used: many a run believed to be FP16 is FP32."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.scaling import loss_scaling
from ampdoctor.analysis.wording import counted
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class ModulePrecision:
    """The dtypes of one module, as recorded; an empty tuple is "nothing recorded".

    Attributes:
        module: path of the module.
        type: its class.
        leaf: it has no child modules.
        autocast: autocast dtype in force around it; None where autocast was off.
        activations: dtypes of its outputs.
        parameters: dtypes of its own parameters.
        gradients: dtypes of its parameters' gradients.
    """

    module: str
    type: str
    leaf: bool
    autocast: str | None
    activations: tuple[str, ...]
    parameters: tuple[str, ...]
    gradients: tuple[str, ...]


@dataclass(frozen=True)
class PrecisionUsed:
    """The precision that a run really used.

    Attributes:
        sentence: all of it in one sentence.
        loss_scaling: none, disabled, hand-written, static or dynamic.
        modules: module by module, in the order in which they were first called.
    """

    sentence: str
    loss_scaling: str
    modules: tuple[ModulePrecision, ...] = ()


def precision_used(run: Run) -> PrecisionUsed:
    """Return the precision that `run` really used, from what was recorded and not from what was asked for."""
    modules = _modules(run)
    scaling = loss_scaling(run)
    parts = [_activations(_training(run, modules)), _weights(run), scaling.phrase]
    return PrecisionUsed(", ".join(part for part in parts if part), scaling.kind.value, modules)


def _modules(run: Run) -> tuple[ModulePrecision, ...]:
    columns = ["module", "role", "slot", "dtype", "autocast"]
    seen = run.table("tensors").select(columns).group_by(columns, use_threads=False).aggregate([])
    outputs: dict[str, set[str]] = {}
    gradients: dict[str, set[str]] = {}
    autocast: dict[str, str | None] = {}
    for row in seen.to_pylist():
        if row["role"] == "activation" and row["slot"].startswith("out"):
            outputs.setdefault(row["module"], set()).add(row["dtype"])
            autocast[row["module"]] = autocast.get(row["module"]) or row["autocast"]
        elif row["role"] == "weight_grad":
            gradients.setdefault(row["module"], set()).add(row["dtype"])
    return tuple(
        ModulePrecision(
            m.module,
            m.type,
            m.leaf,
            autocast.get(m.module),
            tuple(sorted(outputs.get(m.module, ()))),
            tuple(m.dtypes),
            tuple(sorted(gradients.get(m.module, ()))),
        )
        for m in run.modules
    )


def _training(run: Run, modules: tuple[ModulePrecision, ...]) -> tuple[ModulePrecision, ...]:
    """Leave out what only ever ran without gradients, a teacher or an evaluation, unless nothing else did."""
    table = run.table("tensors")
    names = set(table.filter(table["grad_enabled"])["module"].to_pylist())
    return tuple(m for m in modules if m.module in names) or modules


def _activations(modules: Iterable[ModulePrecision]) -> str:
    """Return how many of the modules that compute do so in half: "FP16 autocast in 12 of 14 modules"."""
    called = [m for m in modules if any(format_of_dtype(d) for d in m.activations)]
    computing = [m for m in called if m.leaf] or called  # a wrapper has the place of the only module in it
    if not computing:
        return "no activation recorded"
    kinds = Counter((dtype, m.autocast == dtype) for m in computing for dtype in m.activations if dtype in HALF_DTYPES)
    if not kinds:
        return f"{_titles(d for m in computing for d in m.activations)} in all {counted(len(computing), 'module')}"
    total = counted(len(computing), "module")
    return ", ".join(
        f"{title_of_dtype(dtype)} {'autocast' if cast else 'without autocast'} in {count} of {total}"
        for (dtype, cast), count in kinds.most_common()
    )


def _weights(run: Run) -> str:
    """Return the formats of the trained parameters, and of frozen ones that differ: "FP32 weights"."""
    trained = {d for group in run.optimizers for d in group.dtypes}
    trained = trained or {d for m in run.modules if m.trainable for d in m.dtypes}
    trained = trained or {r.dtype for r in run.tensors("weight_grad")}  # of parameters that no module holds
    frozen = {d for m in run.modules if m.parameters and not m.trainable for d in m.dtypes} - trained
    if not trained:
        return ""
    return f"{_titles(trained)} weights" + (f" ({_titles(frozen)} where frozen)" if frozen else "")


def _titles(dtypes: Iterable[str]) -> str:
    return " and ".join(sorted({title_of_dtype(d) for d in dtypes if format_of_dtype(d)}))
