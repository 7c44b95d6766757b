"""Fused attention in FP32, against torch's own formula and its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ampdoctor.record.twin.attention import IN_FP32, attention, attention_backward
from ampdoctor.record.twin.storages import NotTwinnable

FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
CUDNN = torch.ops.aten._scaled_dot_product_cudnn_attention.default


def tensors(queries: int = 7, keys: int = 7, key_heads: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(2, 4, queries, 8, requires_grad=True),
        torch.randn(2, key_heads, keys, 8, requires_grad=True),
        torch.randn(2, key_heads, keys, 8, requires_grad=True),
    )


@pytest.mark.parametrize(
    ("shape", "causal", "scale", "biased"),
    [
        ({}, False, None, False),
        ({}, True, None, False),
        ({}, True, 0.3, False),
        ({"queries": 5, "keys": 9}, False, None, True),
        ({"key_heads": 2}, True, None, False),
        ({"key_heads": 1}, False, 2.0, True),
    ],
)
def test_it_is_what_torch_computes(shape: Any, causal: bool, scale: float | None, biased: bool) -> None:
    q, k, v = tensors(**shape)
    bias = torch.randn(q.shape[2], k.shape[2]) if biased else None
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=True)
    seed = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (q, k, v), seed)
    with torch.no_grad():
        output, _ = attention(q, k, v, causal=causal, scale=scale, bias=bias)
        found = attention_backward(seed, q, k, v, causal=causal, scale=scale, bias=bias)
    torch.testing.assert_close(output, expected)
    for ours, theirs in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_the_denominators_are_those_of_the_softmax() -> None:
    q, k, v = tensors()
    _, denominators = attention(q, k, v, causal=False, scale=None)
    scores = q @ k.transpose(-1, -2) / 8**0.5
    torch.testing.assert_close(denominators.exp(), scores.exp().sum(-1))


@torch.no_grad()
def test_the_kernels_calls_are_understood() -> None:
    q, k, v = tensors()
    rest = [torch.zeros(0)] * 7
    result = (torch.zeros_like(q), torch.zeros(2, 4, 7), *rest)
    output, denominators, *others = IN_FP32[FLASH](FLASH, (q, k, v, 0.0, True), {"scale": 0.5}, result)
    expected, _ = attention(q, k, v, causal=True, scale=0.5)
    assert torch.equal(output, expected)
    assert denominators.shape == (2, 4, 7)
    assert all(a is b for a, b in zip(others, rest, strict=True))
    args = (torch.ones_like(q), q, k, v, output, denominators, None, None, 7, 7, 0.0, True, None, None)
    found = IN_FP32[FLASH_BACKWARD](FLASH_BACKWARD, args, {}, (q, k, v))
    again = attention_backward(torch.ones_like(q), q, k, v, causal=True, scale=None)
    assert all(map(torch.equal, found, again))


@torch.no_grad()
def test_cudnns_denominators_keep_their_shape() -> None:
    q, k, v = tensors()
    result = (torch.zeros_like(q), torch.zeros(2, 4, 7, 1), *[None] * 7)
    found = IN_FP32[CUDNN](CUDNN, (q, k, v, None, True), {}, result)
    assert found[1].shape == (2, 4, 7, 1)


def test_dropout_inside_the_kernel_is_not_guessed() -> None:
    q, k, v = tensors()
    with pytest.raises(NotTwinnable, match="dropout"):
        IN_FP32[FLASH](FLASH, (q, k, v, 0.1), {}, (q, q))
