"""Fused attention in FP32: the kernels that most training on CUDA runs through know half precision only.

Written out head by head, so that no more than one head's scores are held at a time. Its result is that of the formula
to FP32's rounding; a real FP32 run takes another kernel, whose last digits may differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.storages import NotTwinnable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Heads = tuple[int, int, int]
"""Batch, query head, and the key head that it attends to (fewer key heads than query heads: grouped queries)."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    causal: bool,
    scale: float | None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(q kT * scale + bias) v, and the logarithm of the softmax's denominators.

    Args:
        query: (batch, heads, queries, width).
        key: (batch, key heads, keys, width).
        value: (batch, key heads, keys, value width).
        causal: each query sees the keys up to its own place.
        scale: None for one over the root of the width.
        bias: added to the scores; broadcast to (batch, heads, queries, keys).
    """
    output = query.new_empty((*query.shape[:-1], value.shape[-1]))
    denominators = query.new_empty(query.shape[:-1])
    for b, h, k in _heads(query, key):
        scores = _scores(query, key, (b, h, k), causal, scale, bias)
        denominators[b, h] = torch.logsumexp(scores, dim=-1)
        output[b, h] = torch.softmax(scores, dim=-1) @ value[b, k]
    return output, denominators


def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    causal: bool,
    scale: float | None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value, given that of the output of `attention`."""
    factor = _factor(query, scale)
    for_query, for_key, for_value = map(torch.zeros_like, (query, key, value))
    for b, h, k in _heads(query, key):
        weights = torch.softmax(_scores(query, key, (b, h, k), causal, scale, bias), dim=-1)
        for_value[b, k] += weights.T @ gradient[b, h]
        for_weights = gradient[b, h] @ value[b, k].T
        centred = for_weights - (for_weights * weights).sum(dim=-1, keepdim=True)
        for_scores = weights * centred * factor
        for_query[b, h] = for_scores @ key[b, k]
        for_key[b, k] += for_scores.T @ query[b, h]
    return for_query, for_key, for_value


def _heads(query: torch.Tensor, key: torch.Tensor) -> Iterator[Heads]:
    batch, heads = query.shape[:2]
    group = heads // key.shape[1]
    return ((b, h, h // group) for b in range(batch) for h in range(heads))


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


def _scores(
    query: torch.Tensor, key: torch.Tensor, heads: Heads, causal: bool, scale: float | None, bias: torch.Tensor | None
) -> torch.Tensor:
    b, h, k = heads
    scores = query[b, h] @ key[b, k].T * _factor(query, scale)
    if bias is not None:
        scores = scores + bias.expand(*query.shape[:2], *scores.shape)[b, h]
    if causal:
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores


def _named(operation: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, with the defaults of the schema."""
    arguments = operation._schema.arguments
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {**defaults, **given, **kwargs}


def _common(call: dict[str, Any]) -> dict[str, Any]:
    if call.get("dropout_p"):
        raise NotTwinnable("the dropout inside the kernel can't be drawn again")
    bias = call.get("attn_bias")
    no_bias = bias is None or bias.numel() == 0
    return {
        "causal": bool(call["is_causal"]), "scale": call.get("scale"), "bias": None if no_bias else bias,
    }  # fmt: skip


def forward_again(operation: Any, args: Any, kwargs: dict[str, Any], result: Any) -> tuple[Any, ...]:
    """Return what the fused forward `operation` would return in FP32; what is no value of ours is the run's own."""
    call = _named(operation, args, kwargs)
    output, denominators = attention(call["query"], call["key"], call["value"], **_common(call))
    return (output, denominators.reshape(result[1].shape), *result[2:])


def backward_again(operation: Any, args: Any, kwargs: dict[str, Any], result: Any) -> tuple[Any, ...]:
    """Return what the fused backward `operation` would return in FP32."""
    call = _named(operation, args, kwargs)
    found = attention_backward(call["grad_out"], call["query"], call["key"], call["value"], **_common(call))
    return (*found, *result[3:])


IN_FP32: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.aten._scaled_dot_product_flash_attention.default: forward_again,
    torch.ops.aten._scaled_dot_product_flash_attention_backward.default: backward_again,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default: forward_again,
    torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default: backward_again,
}
"""Operations that take half tensors only, and what stands for them in FP32."""
