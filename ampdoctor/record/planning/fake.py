"""The state of torch in which a step is planned."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules import transformer

from ampdoctor.record.planning.cuda_rules import as_on_cuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


@contextlib.contextmanager
def fake_tensors(on_cuda: bool) -> Iterator[None]:
    """While it lasts, tensors have no values and take no memory."""
    with (
        as_on_cuda() if on_cuda else contextlib.nullcontext(),
        FakeTensorMode(allow_non_fake_inputs=True),
        _masks_as_they_are(),
        warnings.catch_warnings(),
    ):
        # Modules that are copied (nn.TransformerEncoder does so): torch warns of it once.
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        yield


@contextlib.contextmanager
def _masks_as_they_are() -> Iterator[None]:
    """nn.TransformerEncoder compares its mask to a causal one, for a faster kernel: here it takes what it is told."""
    module: Any = transformer
    theirs = module._detect_is_causal_mask

    def told(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        del mask, size
        return bool(is_causal)

    module._detect_is_causal_mask = told
    try:
        yield
    finally:
        module._detect_is_causal_mask = theirs
