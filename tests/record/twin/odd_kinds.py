"""Complex and sparse tensors, indices that floats decide, sums and products of unusual kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import nn

    from tests.record.twin.odd_storages import Kept, Middle


def fft(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A spectrum is filtered, then comes back; it is FP32 where the activations are half."""
    spectrum = torch.fft.rfft(hidden.float())
    spectrum = spectrum * torch.linspace(1, 0, 17)
    filtered: torch.Tensor = torch.fft.irfft(spectrum, n=32)
    return filtered.to(hidden.dtype)


def complex_views(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Rotary embedding by complex numbers: view_as_complex, polar, view_as_real."""
    pairs = torch.view_as_complex(hidden.float().view(8, 16, 2))
    turned = pairs * torch.polar(torch.ones(16), torch.arange(16.0) / 5)
    imaginary = turned.imag.clone()
    imaginary.add_(turned.real)
    return (torch.view_as_real(turned).flatten(1) + imaginary.repeat(1, 2)).to(hidden.dtype)


def sparse_product(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A sparse adjacency matrix, as in graph networks; sparse products have no half kernels on a CPU."""
    index = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 7], [1, 2, 3, 4, 5, 6, 7, 0, 3]])
    adjacency = torch.sparse_coo_tensor(index, torch.full((9,), 0.5), (8, 8), check_invariants=True).coalesce()
    with torch.autocast("cpu", enabled=False):
        mixed: torch.Tensor = torch.sparse.mm(adjacency, hidden.float())
    return hidden + mixed.to(hidden.dtype)


def index_put(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """index_put_, index_add, gather, take_along_dim."""
    rows, columns = torch.tensor([0, 2, 2, 5]), torch.tensor([1, 3, 3, 30])
    y = hidden.clone()
    y.index_put_((rows, columns), hidden[4:, 0], accumulate=True)
    y = y.index_add(0, rows, hidden[:4], alpha=0.5)
    order = torch.arange(32).flip(0).expand(8, -1)
    return y + hidden.gather(1, order) + torch.take_along_dim(hidden, order, dim=1)


def scatter(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """scatter_add_ and scatter_reduce, as in graph networks."""
    target = torch.tensor([0, 1, 0, 2, 1, 3, 3, 0])
    sums = torch.zeros(8, 32, dtype=hidden.dtype)
    sums.scatter_add_(0, target[:, None].expand(-1, 32), hidden)
    return hidden + sums[target]


def chosen_indices(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """sort, topk, argmax, max and searchsorted: rounding may choose other elements in another format."""
    values, order = hidden.sort(dim=1)
    top, _ = hidden.topk(4, dim=1)
    best = F.one_hot(hidden.argmax(1), 32).to(hidden.dtype)
    largest, where = hidden.max(dim=0)
    rank = order.to(hidden.dtype) * 0.01
    return values + top.repeat(1, 8) + best * hidden + largest + hidden[where].diagonal() + rank


def pooled(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Max pooling with indices, given back by unpooling."""
    small, indices = F.max_pool1d(hidden[:, None], 2, return_indices=True)
    back = F.max_unpool1d(small, indices, [2])[:, 0]
    return back + F.adaptive_max_pool1d(hidden[:, None], 32)[:, 0]


def running_sums(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """cumsum, cumprod, logcumsumexp, prod, norms."""
    y = hidden.cumsum(1) * 0.1 + (1 + 0.01 * hidden).cumprod(1)
    y = y + torch.logcumsumexp(hidden, dim=1) + hidden.abs().add(1).log().sum(1, keepdim=True)
    size: torch.Tensor = hidden.norm(dim=1, keepdim=True)
    return y / (1 + size)


def contractions(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """einsum, baddbmm, addmv, outer, bilinear."""
    blocks = hidden.view(8, 4, 8)
    mixed = torch.einsum("bij,bkj->bik", blocks, blocks)
    added = torch.baddbmm(blocks, mixed, blocks, beta=0.5, alpha=0.1)
    vector = torch.addmv(hidden[:, 0], hidden, extra.weight[0].to(hidden.dtype))
    return added.flatten(1) + torch.outer(vector, hidden[0]) * 0.1


def random_draws(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """dropout, bernoulli, normal noise, rand_like, multinomial, a generator of its own, alpha dropout."""
    y = F.dropout(hidden, 0.2) + torch.randn_like(hidden) * 0.1
    y = y * torch.bernoulli(torch.full_like(hidden, 0.9)) + torch.rand_like(hidden) * 0.01
    own = torch.Generator().manual_seed(7)
    y = y + torch.empty_like(hidden).normal_(generator=own) * 0.01
    y = F.alpha_dropout(F.feature_alpha_dropout(y, 0.1), 0.1)
    return y + hidden[torch.multinomial(torch.ones(8), 8)]


def constants(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Tensors made in the format of the activations: eps, ramps, masks, where, nan_to_num, clamp, finfo."""
    dtype = hidden.dtype
    eps, ramp = torch.tensor(1e-3, dtype=dtype), torch.linspace(0, 1, 32, dtype=dtype)
    y = hidden / (hidden.abs() + eps) * ramp + torch.arange(32, dtype=dtype) / 64
    y = torch.where(y > 0.5, y, hidden).clamp(-4, 4)
    bias = torch.full((32,), torch.finfo(dtype).min, dtype=dtype).masked_fill(ramp < 0.9, 0.0)
    return torch.nan_to_num(y * (hidden + bias).softmax(-1))


def quantised(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """round and a straight-through estimator; float → int64 → float."""
    steps = (hidden * 8).round()
    index = steps.detach().long().clamp(-16, 15) + 16
    table = torch.linspace(-2, 2, 32, dtype=hidden.dtype)
    return hidden + (table[index] - hidden).detach()


MIDDLES: tuple[Middle, ...] = (
    fft, complex_views, sparse_product, index_put, scatter, chosen_indices, pooled, running_sums, contractions,
    random_draws, constants, quantised,
)  # fmt: skip
