"""The rows of the table `optimizers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.groups import groups_of
from ampdoctor.record.tensors import dtype_name
from ampdoctor.trace.schema import OptimizerRow

if TYPE_CHECKING:
    from ampdoctor.record.log import StepLog


def describe(log: StepLog, name: str, optimizer: torch.optim.Optimizer) -> None:
    """Queue the rows of the `optimizers` table."""
    for index, group in enumerate(groups_of(optimizer)):
        row = OptimizerRow(
            step=log.step,
            optimizer=name,
            type=_type(optimizer),
            group=index,
            lr=_number(group.get("lr")),
            weight_decay=_number(group.get("weight_decay")),
            eps=_number(group.get("eps")),
            momentum=_number(group.get("momentum")),
            betas=_numbers(group.get("betas")),
            fused=group.get("fused"),
            foreach=group.get("foreach"),
            parameters=len(group["params"]),
            numel=sum(p.numel() for p in group["params"]),
            dtypes=sorted({dtype_name(p.dtype) for p in group["params"]}),
        )
        log.row("optimizers", lambda _, row=row: row)  # type: ignore[misc]


def _type(optimizer: torch.optim.Optimizer) -> str:
    """Return the class name, with its module in front where it is none of torch's own: others bear the same names."""
    kind = type(optimizer)
    own = kind.__module__.startswith("torch.optim.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def _number(value: Any) -> float | None:
    """A tensor on an accelerator stays unread: reading it would wait for the device."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None


def _numbers(values: Any) -> list[float] | None:
    if not isinstance(values, (tuple, list)):
        return None
    numbers = [_number(v) for v in values]
    return [n for n in numbers if n is not None] if None not in numbers else None
