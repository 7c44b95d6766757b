"""Activation checkpointing of the blocks that a model is made of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
"""Random numbers are not kept: fake tensors have none."""


def checkpoint_blocks(model: nn.Module) -> None:
    """Have each block computed again in the backward pass: of Hugging Face's models those that they name, of others
    the members of a list or sequence of modules of one class."""
    # Transformers has two names for it: the older one warns in releases that have both.
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        enable: Any = getattr(model, f"{name}_enable", None)
        if enable is not None:
            enable(**{f"{name}_kwargs": _SETTINGS})
            return
    blocks = list(_blocks(model))
    if not blocks:
        raise AmpDoctorError(
            "--checkpoint finds no blocks: no nn.ModuleList or nn.Sequential of modules of one class",
            hint="let the factory checkpoint what it wants to, and leave out --checkpoint",
        )
    for block in blocks:
        forward: Any = partial(checkpoint, block.forward, **_SETTINGS)
        block.forward = forward


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost ones."""
    children = list(module.children())
    alike = len(children) > 1 and len({type(child) for child in children}) == 1
    if alike and isinstance(module, (nn.ModuleList, nn.Sequential)) and any(True for _ in children[0].children()):
        yield from children
        return
    for child in children:
        yield from _blocks(child)
