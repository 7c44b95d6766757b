"""Models from a Hugging Face config.json, without their weights."""

from __future__ import annotations

import json
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 2048
"""Tokens per sample by default, where the model takes as many."""


def is_config(text: str) -> bool:
    """Whether `text` is the path of a config, or of a folder: no factory is named so."""
    path = Path(text)
    return path.suffix == ".json" or path.is_dir()


def configured(path: Path, sequence: int | None) -> tuple[Callable[[], Any], int]:
    """Return a factory for the model that a config describes, and how many tokens its samples have.

    Raises:
        AmpDoctorError: there is no such config, or it is none of a language model.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind = content["model_type"]
    except OSError as error:
        raise AmpDoctorError(f"cannot read {file}: {error.strerror}", hint="give a config.json or its folder") from None
    except (ValueError, KeyError, TypeError):
        raise AmpDoctorError(
            f"{file} is no config of Hugging Face's", hint='it is a JSON object with a "model_type"'
        ) from None
    config = _config(kind, content, file)
    tokens = sequence or min(getattr(config, "max_position_embeddings", None) or LONGEST, LONGEST)
    return lambda: _made(config, tokens), tokens


def _config(kind: str, content: dict[str, Any], file: Path) -> Any:
    try:
        transformers = import_module("transformers")
    except ImportError:
        raise AmpDoctorError(
            "a config.json needs the package transformers", hint="python -m pip install transformers"
        ) from None
    settings = {k: v for k, v in content.items() if k != "model_type"}
    try:
        return transformers.AutoConfig.for_model(kind, **settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise AmpDoctorError(
            f"transformers {transformers.__version__} can't use {file}: {said[0]}",
            hint="is the model newer than the installed transformers, or does it bring its own code?",
        ) from None


def _made(config: Any, tokens: int) -> tuple[Any, Callable[[int], Any]]:
    transformers = import_module("transformers")
    names = getattr(config, "architectures", None) or []
    kind = getattr(transformers, names[0], None) if names else None
    # In FP32 whatever the config says its weights were saved in: the layout decides.
    config.dtype = torch.float32
    config.use_cache = False  # keys and values are kept for generating text only
    model = kind(config) if kind is not None else transformers.AutoModelForCausalLM.from_config(config)
    if "input_ids" not in signature(model.forward).parameters:
        raise AmpDoctorError(
            f"{type(model).__name__} takes no tokens", hint="write a factory that returns the model and its batches"
        )
    return model, lambda size: _tokens(model, size, tokens)


def _tokens(model: Any, size: int, tokens: int) -> dict[str, torch.Tensor]:
    """Return a batch: `input_ids`, and the same as `labels` where the model takes them and predicts tokens."""
    ids = torch.zeros((size, tokens), dtype=torch.long)
    if "labels" not in signature(model.forward).parameters:
        return {"input_ids": ids}
    per_sample = type(model).__name__.endswith(("SequenceClassification", "MultipleChoice"))
    return {"input_ids": ids, "labels": torch.zeros(size, dtype=torch.long) if per_sample else ids}
