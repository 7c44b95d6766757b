"""Are two tensors the same to the bit? NaN included, and zeros with their sign."""

from __future__ import annotations

import math

import torch

_SAMPLED = 4096
"""Elements looked at of a tensor that is met on every step; any difference before it spreads through all of them."""

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether shape, dtype and every bit agree. Waits for the device."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout or a.device != b.device:
        return False
    return torch.equal(_bits(a), _bits(b))


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of at most _SAMPLED elements, evenly spread; no wait, whatever the strides."""
    sizes, steps = list(tensor.shape), [1] * tensor.dim()
    while math.prod(sizes) > _SAMPLED:
        longest = max(range(len(sizes)), key=sizes.__getitem__)
        # An odd step, so that it does not fall in with the powers of two that sizes are made of.
        steps[longest] = steps[longest] * 2 + 1
        sizes[longest] = -(-tensor.shape[longest] // steps[longest])
    spread = tuple(slice(None, None, step) for step in steps)
    return tensor.detach()[spread].clone()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    return tensor.view(_WHOLE[tensor.element_size()]) if tensor.is_floating_point() else tensor
