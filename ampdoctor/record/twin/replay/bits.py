"""Are two tensors the same to the bit? NaN included, and zeros with their sign."""

from __future__ import annotations

import math

import torch

_SAMPLED = 4096
"""Elements looked at of a tensor that is met on every step; any difference before it spreads through all of them."""

_MOST_SUMMED = 1 << 24
"""Elements of an output that are all added up on every step."""

_WORD = 8

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


def checksum(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a sum over all bits; None where the sample is all, there are too many, or they lie scattered.

    It waits for nothing and copies nothing. An element that differs by itself changes it; together with the sample,
    what differs in many hardly ever doesn't. That of a tensor with other strides or another offset is another one.
    """
    numel = tensor.numel()
    if type(tensor) is not torch.Tensor or not _SAMPLED < numel <= _MOST_SUMMED:
        return None
    if not _dense(tensor):
        return None
    each = _WORD // tensor.element_size()
    start = tensor.storage_offset()
    skipped = min(-start % each, numel)
    words = (numel - skipped) // each
    # Added up as the words that the elements make: sums of short integers would need a copy in long ones.
    flat = tensor.detach().as_strided((numel,), (1,))
    whole = flat[skipped : skipped + words * each].view(torch.int64).sum()
    short = _WHOLE[tensor.element_size()]
    for rest in (flat[:skipped], flat[skipped + words * each :]):
        if rest.numel():
            whole += rest.view(short).sum()
    return whole


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory, in whatever order."""
    if tensor.layout is not torch.strided:
        return False
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    return tensor.view(_WHOLE[tensor.element_size()]) if tensor.is_floating_point() else tensor
