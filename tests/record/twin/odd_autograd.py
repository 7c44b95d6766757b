"""Autograd out of the ordinary: own functions, recomputation, second derivatives, threads, evaluation in between."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from torch import nn

    from tests.record.twin.odd_storages import Kept, Middle


class _Square(torch.autograd.Function):
    """Runs in the format that autocast has at the time."""

    @staticmethod
    @custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return (x @ weight).square()

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        inner = 2 * gradients[0] * (x @ weight)
        return inner @ weight.t(), x.t() @ inner


class _InFull(torch.autograd.Function):
    """Has its inputs cast to FP32 and runs without autocast."""

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        slope: torch.Tensor = s + x * s * (1 - s)
        return gradients[0] * slope


def own_functions(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """autograd.Function with custom_fwd and custom_bwd, with and without cast_inputs."""
    squared: torch.Tensor = _Square.apply(hidden, extra.weight)  # type: ignore[no-untyped-call]
    full: torch.Tensor = _InFull.apply(hidden)  # type: ignore[no-untyped-call]
    return hidden + 0.1 * squared.to(hidden.dtype) + full.to(hidden.dtype)


def recomputed(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A checkpoint in a checkpoint, with dropout inside both."""

    def inner(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.tanh(extra(x)), 0.1)

    def outer(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(inner, F.dropout(x, 0.1), use_reentrant=False)
        return y + x

    result: torch.Tensor = checkpoint(outer, hidden, use_reentrant=False)
    return result


def evaluation(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Something is measured under no_grad and inference_mode in between; only the first is used."""
    with torch.no_grad():
        level: torch.Tensor = extra(hidden).square().mean().sqrt()
    with torch.inference_mode():
        extra(hidden).argmax(1).sum()
    return hidden / (1 + level)


def control_flow(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Values of floats decide what is run, and become Python numbers."""
    level = hidden.detach().abs().max().item()
    y = hidden / max(level, 1.0)
    if bool((y > 0.5).any()) or torch.equal(y, hidden):
        y = y * 0.5
    return y[:, y.detach().float().mean(0).argsort()]


def second_derivative(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """autograd.grad inside the forward pass, with a graph of its own: a gradient penalty."""
    energy = torch.tanh(extra(hidden)).square().sum()
    (slope,) = torch.autograd.grad(energy, hidden, create_graph=True)
    return hidden - 0.1 * slope


def inner_loop(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A few steps of gradient descent on a leaf made from an activation."""
    code = hidden.detach().float().clone().requires_grad_()
    for _ in range(2):
        error = (extra(code).float() - code).square().mean()
        (slope,) = torch.autograd.grad(error, code)
        with torch.no_grad():
            code -= 0.1 * slope
    return hidden + code.detach().to(hidden.dtype)


def tensor_hooks(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """The user's hooks change gradients on their way."""
    y = hidden * 1.0
    y.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
    y.register_hook(lambda gradient: gradient + 0.001 * gradient.mean())
    return y


def saved_in_half(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """What backward needs is packed away by the user's own hooks, here to BF16 and back."""

    def pack(x: torch.Tensor) -> tuple[torch.dtype, torch.Tensor]:
        return x.dtype, x.to(torch.bfloat16) if x.is_floating_point() else x

    def unpack(packed: tuple[torch.dtype, torch.Tensor]) -> torch.Tensor:
        return packed[1].to(packed[0])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return torch.tanh(extra(hidden)) + hidden.square()


def thread(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """Another thread works on tensors meanwhile: on its own, and on a copy whose result the step uses."""
    copy, found = hidden.detach().float().clone(), {}

    def work() -> None:
        own = torch.arange(64.0).view(8, 8)
        found["own"] = (own @ own).half().sum()
        found["scaled"] = copy.mul_(0.5) + 1.0

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return hidden + found["scaled"].to(hidden.dtype)


def gradients_in_the_step(hidden: torch.Tensor, extra: nn.Linear, kept: Kept) -> torch.Tensor:
    """A parameter has a `.grad` from elsewhere, which backward adds to."""
    extra.weight.grad = torch.full_like(extra.weight, 2.0**-6)
    return hidden


MIDDLES: tuple[Middle, ...] = (
    own_functions, recomputed, evaluation, control_flow, second_derivative, inner_loop, tensor_hooks,
    saved_in_half, thread, gradients_in_the_step,
)  # fmt: skip
