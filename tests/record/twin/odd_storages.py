"""Views, slices, shared and changing storages, buffers that outlive the step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Kept = dict[str, torch.Tensor]
Middle = Callable[[torch.Tensor, nn.Linear, Kept], torch.Tensor]


def views(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """View, expand, permute, unfold, a transposed view that is changed in place."""
    base = hidden.clone()
    base.t()[::2].mul_(0.5)
    wide = base.view(8, 4, 8).permute(0, 2, 1).reshape(8, 32)
    rows = base.mean(0, keepdim=True).expand(8, -1)
    windows = base.unfold(1, 4, 4).sum(-1).repeat_interleave(4, dim=1)
    return wide + rows + windows


def strided(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """as_strided with overlapping rows; narrow, diagonal, real views of the same memory."""
    contiguous = hidden.contiguous()
    overlapping = contiguous.as_strided((8, 32), (24, 1), 8)
    contiguous = contiguous + contiguous.narrow(1, 0, 8).repeat(1, 4)
    return overlapping + contiguous + contiguous.diagonal().mean()


def slices_in_place(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """`+=` and masks on parts of a tensor."""
    y = hidden.clone()
    y[:, ::2] += hidden[:, 1::2]
    y[2:4] *= 0.25
    y[:, 5] = hidden[:, 6].detach()
    y.masked_fill_(y > 1.5, 1.5)
    y[y < -1] = -1.0
    return y


def split_and_cat(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """chunk, unbind, stack, cat, roll, flip."""
    left, right = hidden.chunk(2, dim=1)
    left = torch.stack(left.unbind(1)[::-1], dim=1)
    return torch.cat([right.roll(1, 1), left.flip(1)], dim=1)


def out_argument(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """`out=` into a tensor that is reused, resized by the op where it is too small."""
    with torch.no_grad():
        product = torch.empty(0, dtype=hidden.dtype)
        torch.mm(hidden.t(), hidden, out=product)
        torch.add(product, 1.0, out=product)
        torch.clamp(product[0], -2.0, 2.0, out=product[1])
    return hidden * product.mean(0)


def foreach(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """torch._foreach_* on activations, with and without in-place."""
    parts = list(hidden.chunk(4, dim=1))
    scaled = torch._foreach_mul(parts, [0.5, 1.0, 2.0, 1.5])
    shifted = torch._foreach_add(scaled, parts, alpha=0.1)
    averages = [p.detach().clone() for p in parts]
    torch._foreach_mul_(averages, 0.9)
    torch._foreach_lerp_(averages, [p.detach() for p in parts], 0.1)
    return torch.cat(shifted, dim=1) + torch.cat(averages, dim=1)


def moving_average(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A buffer that outlives the step, in the format of the activations."""
    mean = hidden.detach().mean(0)
    average = kept.setdefault("average", torch.zeros_like(mean))
    average.mul_(0.9).add_(mean, alpha=0.1)
    return hidden - average.clone()


def half_buffers(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """copy_ into a preallocated buffer of another shape, format following the activations."""
    buffer = torch.empty(10, 32, dtype=hidden.dtype)
    buffer[1:9].copy_(hidden)
    buffer[0], buffer[9] = 0.0, hidden[-1].detach()
    wide = torch.zeros(10, 32, dtype=torch.float64)
    wide.copy_(buffer)
    return buffer[:8] + buffer[2:] + wide[1:9].to(hidden.dtype)


def shared_storage(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Two tensors lie on one storage; what is written through one is read through the other."""
    memory = torch.empty(12 * 32, dtype=hidden.dtype)
    one, two = memory[: 8 * 32].view(8, 32), memory[4 * 32 :].view(8, 32)
    with torch.no_grad():
        one.copy_(hidden)
        two[4:].copy_(hidden[:4] * 2)
    return hidden + two


def set_source(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """set_ puts a tensor on another's storage."""
    values = hidden.detach().clone()
    tensor = torch.empty(0, dtype=hidden.dtype)
    tensor.set_(values)  # type: ignore[call-overload]  # the stubs know storages only
    tensor.mul_(0.5)
    other = torch.empty(0, dtype=hidden.dtype)
    other.set_(values.untyped_storage(), 32, (4, 32), (32, 1))
    return hidden + values + other.repeat(2, 1)


def resized(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """resize_ grows a storage and shrinks a tensor; FSDP's trick frees a storage and fills it again."""
    tensor = hidden.detach()[:2].clone()
    tensor.resize_(8, 32)
    tensor[2:] = hidden.detach()[2:] * 0.5
    size = tensor.untyped_storage().nbytes()
    copy = tensor.clone()
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(size)
    tensor.copy_(copy * 2)
    return hidden + tensor.resize_(4, 32).repeat(2, 1)


def data_swap(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A weight's data is exchanged in the middle of the step."""
    before = extra.weight.data
    extra.weight.data = before * 0.5 + 0.01
    return hidden + hidden.data * 0.1


def numpy_shared(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """numpy reads and writes the memory of a tensor; nothing of torch sees it."""
    gains = torch.ones(32)
    gains.numpy()[::2] = 0.5
    offsets = torch.from_numpy(hidden.detach().float().mean(0).numpy() * 0.1)
    return hidden * gains.to(hidden.dtype) + offsets.to(hidden.dtype)


def bits(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """The memory is read as integers: no twin can follow that."""
    integers = hidden.detach().clone().view(torch.uint8)
    return hidden + (integers.float().mean() / 1024).to(hidden.dtype)


MIDDLES: tuple[Middle, ...] = (
    views, strided, slices_in_place, split_and_cat, out_argument, foreach, moving_average, half_buffers,
    shared_storage, set_source, resized, data_swap, numpy_shared, bits,
)  # fmt: skip
