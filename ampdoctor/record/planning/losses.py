"""How a planned model is called, and what of its output the backward pass begins at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.tensors import tensors_in

if TYPE_CHECKING:
    from torch import nn


def called_with(model: nn.Module, data: Any) -> Any:
    """Return the model's output for a batch: a tensor, a tuple of arguments or a mapping of named ones."""
    if isinstance(data, Mapping):
        return model(**data)
    return model(*data) if isinstance(data, (tuple, list)) else model(data)


def converted(data: Any, dtype: torch.dtype) -> Any:
    """Return a batch whose FP32 tensors have the dtype of the weights, as half weights ask for."""
    if isinstance(data, Mapping):
        return {key: converted(value, dtype) for key, value in data.items()}
    if isinstance(data, (tuple, list)):
        return tuple(converted(value, dtype) for value in data)
    return data.to(dtype) if isinstance(data, torch.Tensor) and data.dtype == torch.float32 else data


def loss_of(output: Any) -> torch.Tensor:
    """Return the loss: `output.loss`, `output["loss"]`, or the first scalar; else the mean of the first tensor."""
    named = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(named, torch.Tensor):
        return named if named.dim() == 0 else named.float().mean()
    tensors = [t for t in tensors_in(output) if t.requires_grad]
    loss = next((t for t in tensors if t.dim() == 0), None)
    if loss is not None:
        return loss
    if not tensors:
        raise AmpDoctorError(
            "the model returns no tensor that depends on its weights",
            hint="return the loss, an object with .loss, or the output whose mean is to stand for a loss",
        )
    return tensors[0].float().mean()
