"""Operations one by one beside their twins: whatever tensors are, values are right or the operation is named."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.two_tensor import TwoTensor

from ampdoctor.record.twin.counterfactual import Counterfactual
from tests.record.twin.beside import alone, beside, half, in_fp32, same

if TYPE_CHECKING:
    from collections.abc import Callable

T = torch.Tensor


def pairs(x: T) -> T:
    """Return x as complex numbers; FP32 in every format."""
    return torch.view_as_complex(x.float().view(8, 8, 2))


def conjugates(x: T) -> tuple[T, ...]:
    c = pairs(x).conj()
    e = c.clone()
    e.mul_(2)
    return torch.view_as_real(c * c), torch.view_as_real(e), c.imag, c.imag.clone() + 1, c.real * 2


def negative_in_place(x: T) -> tuple[T, ...]:
    c = pairs(x).clone()
    n = c.conj().imag
    n.mul_(3)
    n.add_(1)
    return c.real.clone(), c.imag.clone(), n.clone(), torch.view_as_real(c.conj().resolve_conj())


def empty(x: T) -> tuple[T, ...]:
    nothing = x[:0]
    return nothing.mul_(2), torch.cat([x, nothing]), x[:, :0].sum(1), nothing.sum()


def scalars(x: T) -> tuple[T, ...]:
    s = x.mean()
    s.mul_(2)
    s += 1
    return s, x * s, s.expand(3), s.clone().reshape(1)


def batch_norm(x: T) -> tuple[T, ...]:
    mean, var = torch.zeros(16), torch.ones(16)
    return F.batch_norm(x, mean, var, training=True), mean * 1, var * 1


def instance_norm(x: T) -> tuple[T, ...]:
    mean, var = torch.zeros(4), torch.ones(4)
    return F.instance_norm(x.view(8, 4, 4), mean, var, use_input_stats=True), mean * 1, var * 1


def renormed_embedding(x: T) -> tuple[T, ...]:
    weight = x.clone()
    return F.embedding(torch.tensor([0, 1, 2]), weight, max_norm=0.5), weight * 1


def raw_memory(x: T) -> tuple[T, ...]:
    memory = torch.zeros(1024, dtype=torch.uint8)
    piece = memory[:256].view(torch.float16).view(8, 16)
    piece.copy_(x)
    doubled = piece * 2
    memory.zero_()
    return doubled.float(), piece.float() + 1


def in_inference_mode(x: T) -> T:
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        return y * 1


def gathered(x: T) -> tuple[T, ...]:
    best, index = torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=torch.long)
    torch.topk(x, 3, out=(best, index))
    return best, index, *torch._foreach_norm([x, x * 2])


def scaler_check(x: T) -> tuple[T, ...]:
    gradient, found = x.float() * 1e30 * 1e20, torch.zeros(())
    torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, torch.full((), 0.5))
    return gradient, found


def lent_memory(x: T) -> tuple[T, ...]:
    """A cast borrows FP32 memory that is then changed and freed."""
    full = x.float() * 1
    before = full.to(x.dtype, copy=True)
    full.mul_(3)
    after = full.to(x.dtype)
    del full
    return before.float(), after.float()


def sparse_in_place(x: T) -> T:
    s = x.float().to_sparse()
    s.add_(s)
    return s.to_dense()


def coalesced(x: T) -> T:
    index = torch.tensor([[0, 0, 1], [1, 1, 2]])
    s = torch.sparse_coo_tensor(index, x[0, :3].float(), (3, 3), check_invariants=True)
    return s.coalesce().to_dense()


def wrapped(x: T) -> tuple[T, ...]:
    t = TwoTensor(x * 2, x * 3)
    u: Any = t @ t.t()
    return u.a, u.b


def dropouts(x: T) -> tuple[T, ...]:
    heads = x.view(1, 2, 8, 8)
    attention = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.3)
    return F.dropout(x * 1, 0.5), F.dropout(x * 1, 0.5, inplace=True), attention, F.dropout1d(x)


def drawn_from_values(x: T) -> tuple[T, ...]:
    p = torch.sigmoid(x)
    return torch.bernoulli(p), F.rrelu(x.float(), training=True), torch.poisson(x.float().abs())


def zero_tensors(x: T) -> tuple[T, ...]:
    """The gradient of sgn is a tensor without any memory, which claims to have some."""
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((leaf * 2).sgn().sum(), leaf)
    assert gradient._is_zerotensor()
    return gradient + x, (gradient * x).contiguous(), gradient.clone() + 0


FOLLOWED: tuple[Callable[..., Any], ...] = (
    conjugates, negative_in_place, empty, scalars, batch_norm, instance_norm, renormed_embedding,
    in_inference_mode, gathered, scaler_check, lent_memory, coalesced, wrapped, dropouts,
    drawn_from_values, zero_tensors,
)  # fmt: skip


def chosen_by_value(x: T) -> tuple[T, ...]:
    y = (x * 0.3337 * 1000).round()
    chosen = y[y > 300]
    row = chosen.unsqueeze(0) + 1
    chosen.mul_(2)
    return chosen, row.sum()


def in_complex_half(x: T) -> T:
    c = torch.view_as_complex(x.view(8, 8, 2))
    return torch.view_as_real(c * c).float()


def nested(x: T) -> T:
    n = torch.nested.nested_tensor([x[:3], x[3:]])
    return (n * 2).to_padded_tensor(0.0).float()


def quantised(x: T) -> T:
    return torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8).dequantize() * 1


def copied_deeply(x: T) -> T:
    return copy.deepcopy(x * 2) * 1


def mkldnn(x: T) -> T:
    return x.float().to_mkldnn().relu().to_dense() * 1


def given_back(x: T) -> T:
    full = torch.full((8, 16), 0.1)
    cast = full.to(x.dtype)
    full.untyped_storage().resize_(0)
    return cast.float() * 1


NAMED = {
    in_complex_half: "half complex tensor",
    nested: "nested tensor",
    quantised: "quantized tensor",
    raw_memory: "looks at half numbers as torch.uint8",
    copied_deeply: "looks at half numbers as torch.uint8",
    sparse_in_place: "sparse_coo tensor",
    given_back: "its memory was given back",
}


@pytest.mark.parametrize("function", FOLLOWED, ids=lambda f: f.__name__)
def test_followed(function: Callable[..., Any]) -> None:
    x = half(8, 16)
    torch.manual_seed(0)
    plain, state = alone(function, [x]), torch.get_rng_state()
    torch.manual_seed(0)
    found = beside(function, [x])
    assert torch.equal(torch.get_rng_state(), state)
    assert found.errors == []
    assert dict(found.twin.not_twinned) == {}
    assert same(found.results, plain)
    torch.manual_seed(0)
    assert same(found.values(), in_fp32(function, [x]))


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.filterwarnings("ignore:.*[Qq]uantiz")
@pytest.mark.parametrize("function", NAMED, ids=lambda f: f.__name__)
def test_named(function: Callable[..., Any]) -> None:
    x = half(8, 16)
    found = beside(function, [x])
    assert found.errors == []
    assert any(NAMED[function] in name for name in found.twin.not_twinned)
    assert same(found.results, alone(function, [x]))
    for ours, twin in zip(found.results, found.values(), strict=True):
        assert torch.allclose(ours.float(), twin.float(), atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_chosen_by_value_has_its_own_shape(dtype: torch.dtype) -> None:
    x = half(8, 16, dtype=dtype)
    found = beside(chosen_by_value, [x])
    assert found.errors == []
    assert same(found.results, alone(chosen_by_value, [x]))
    assert torch.equal(found.twin.values(found.results[0]), in_fp32(chosen_by_value, [x])[0])


def test_a_small_part_of_a_large_storage_costs_a_small_twin() -> None:
    data = half(1 << 10, 1 << 11)  # 4 MiB, a data set in half precision, say

    found = beside(lambda d: (d[7] * 0.3, d[8:10].sum(1)), [data])
    assert same(found.values(), in_fp32(lambda d: (d[7] * 0.3, d[8:10].sum(1)), [data]))
    assert found.twin.storages.most_bytes < 1 << 20

    def written(d: T) -> tuple[T, ...]:
        d[7] += 1e-4
        return d[7] * 0.3, d.sum()

    found = beside(written, [data])
    assert same(found.values(), in_fp32(written, [data]))


def test_beyond_its_budget_a_twin_is_out_of_memory() -> None:
    found = beside(lambda x: x * 2, [half(8, 16)])
    found.twin.storages.budget.limit = found.twin.storages.bytes + 64
    with pytest.raises(torch.OutOfMemoryError, match="twins may take"):
        found.twin.storages.copy_of(half(8, 16), torch.float32)
    found.twin.storages.clear()
    assert found.twin.storages.budget.used == 0


@pytest.mark.parametrize("given", ["own", "part", "expanded", "twice", "twinned"])
def test_a_gradient_given_to_backward_is_scaled_for_the_twin_and_then_itself_again(given: str) -> None:
    memory = half(4, 8).float()
    gradient = {
        "own": torch.full((8,), 2.0), "part": memory[1], "expanded": torch.full((1,), 2.0).expand(8),
        "twice": torch.full((8,), 2.0), "twinned": torch.full((8,), 2.0),
    }[given]  # fmt: skip
    found = beside(lambda x: x * 1, [half(8)], Counterfactual("fp16", 2.0**10))
    twin = found.twin
    if given == "twinned":
        twin.replace(gradient, torch.full((8,), 3.0))
    before, rest = twin.values(gradient).clone(), twin.values(memory[0]).clone()
    twin.seed([gradient, gradient] if given == "twice" else [gradient], 2.0**10)
    assert torch.equal(twin.values(gradient), before * 2.0**10)
    assert torch.equal(twin.values(memory[0]), rest)
    twin.seed_taken()
    assert torch.equal(twin.values(gradient), before)


def test_a_gradient_without_memory_of_its_own_is_named() -> None:
    found = beside(lambda x: x * 1, [half(8)], Counterfactual("fp16", 2.0**10))
    found.twin.seed([torch.eye(3).to_sparse()], 2.0)
    found.twin.seed_taken()
    assert list(found.twin.not_twinned) == ["gradient given to backward: sparse_coo tensor"]
