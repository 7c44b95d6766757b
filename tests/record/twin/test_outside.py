"""Kernels that no operation tells of: what they have written is the run's in every world, and is named."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32, Counterfactual
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from tests.record.twin.beside import alone, beside, half, same

if TYPE_CHECKING:
    from collections.abc import Callable

T = torch.Tensor
OUTSIDE = "written outside torch's operations"


def memory(tensor: T) -> np.ndarray[Any, Any]:
    """Return the memory of a contiguous tensor, without torch's knowing of it."""
    kind, dtype = {2: (ctypes.c_uint16, np.float16), 4: (ctypes.c_uint32, np.float32)}[tensor.element_size()]
    pointer = ctypes.cast(tensor.data_ptr(), ctypes.POINTER(kind))
    return np.ctypeslib.as_array(pointer, (tensor.numel(),)).view(dtype)


def kernel(x: T, y: T) -> None:
    """Write half of x to y."""
    memory(y)[:] = memory(x) * 0.5


def into(allocate: Callable[[T], T]) -> Callable[[T], T]:
    """Return a function that lets the kernel write to new memory."""

    def function(x: T) -> T:
        x = (x * 3).contiguous()
        y = allocate(x)
        kernel(x, y)
        return y * 1

    return function


MAKERS: dict[str, Callable[[T], T]] = {
    "empty_like": torch.empty_like,
    "empty": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "new_empty": lambda x: x.new_empty(x.shape),
    "empty_strided": lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype),
    "resize_": lambda x: torch.empty(0, dtype=x.dtype).resize_(x.shape),
}


@pytest.mark.parametrize("counterfactual", [FP32, Counterfactual("bf16"), Counterfactual("fp16")])
@pytest.mark.parametrize("maker", MAKERS)
def test_what_was_written_from_outside_is_the_run_s(maker: str, counterfactual: Counterfactual) -> None:
    found = beside(into(MAKERS[maker]), [half(8, 16)], counterfactual)
    assert found.errors == []
    assert dict(found.twin.not_twinned) == {f"aten.{maker}: {OUTSIDE}": 1}
    expected = found.results[0].to(counterfactual.dtype)
    assert torch.equal(found.values()[0], expected)


def test_fp32_memory_is_named_too() -> None:
    def function(x: T) -> T:
        x = x.float() * 3
        y = torch.empty(8, 16)
        kernel(x, y)
        return y * 1

    found = beside(function, [half(8, 16)])
    assert dict(found.twin.not_twinned) == {f"aten.empty: {OUTSIDE}": 1}


def test_in_place_arithmetic_reads_what_was_written() -> None:
    def function(x: T) -> T:
        y = torch.empty_like(x)
        kernel(x, y)
        return y.add_(1)

    found = beside(function, [half(8, 16)])
    assert dict(found.twin.not_twinned) == {f"aten.empty_like: {OUTSIDE}": 1}
    assert torch.allclose(found.values()[0], found.results[0].float(), atol=1e-2)


def test_what_is_compared_at_once_is_the_run_s() -> None:
    def function(x: T) -> T:
        y = torch.empty_like(x)
        kernel(x, y)
        return y

    found = beside(function, [half(8, 16)])
    assert torch.equal(found.values()[0], found.results[0].float())
    assert dict(found.twin.not_twinned) == {f"aten.empty_like: {OUTSIDE}": 1}


def filled(x: T) -> tuple[T, ...]:
    """Memory that operations fill, each in its way."""
    permuted = torch.empty_like(x)
    permuted[torch.arange(7, -1, -1)] = x * 0.3
    rows = x.new_empty(8, 16)
    for n in range(8):
        rows[n] = x[n] * 0.1
    out = torch.empty(8, 8, dtype=x.dtype)
    torch.mm(x, x.t(), out=out)
    nothing = torch.empty(8, 8, dtype=x.dtype)
    product = torch.baddbmm(nothing[None], x[None], x.t()[None], beta=0)
    scattered = torch.empty_like(x).scatter_(0, torch.arange(8)[:, None].expand(8, 16), x * 0.7)
    return permuted * 1, rows * 1, out * 1, product, torch.empty_like(x).fill_(2) * x, scattered * 1


def test_what_operations_fill_is_not_from_outside() -> None:
    x = half(8, 16)
    found = beside(filled, [x])
    assert found.errors == []
    assert dict(found.twin.not_twinned) == {}
    assert same(found.results, alone(filled, [x]))
    assert same(found.values(), alone(filled, [x.float()]))


class JITFunction:
    """Stands for Triton's."""

    __name__ = "halved"

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        x, y = args
        kernel(x, y)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have Triton loaded."""
    module = types.ModuleType("triton.runtime.jit")
    module.JITFunction = JITFunction  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    return JITFunction


def launched(x: T) -> tuple[T, T, T]:
    x = x * 0.3337
    y = torch.ones_like(x) * 3
    kept = x * 1
    JITFunction().run(x, y, grid=(1,))
    return x * 1, y * 1, kept


def test_a_launch_of_triton_s_is_seen(triton: Any) -> None:
    before, x = triton.run, half(8, 16)
    found = beside(launched, [x])
    assert found.errors == []
    assert triton.run is before
    assert same(found.results, alone(launched, [x]))
    assert dict(found.twin.not_twinned) == {"triton.halved: launched outside torch's operations": 1}
    read, written, kept = found.values()
    assert torch.equal(written, found.results[1].float())
    # What the kernel has only read goes on in its own world.
    assert torch.equal(read, x.float() * 0.3337)
    assert torch.equal(kept, x.float() * 0.3337)


def test_launches_elsewhere_are_none_of_ours(triton: Any) -> None:
    plain, twin, errors = triton.run, CarriedTwin(FP32), list[Exception]()
    mode = TwinMode([twin], Places(lines=False), errors.append)
    with mode:
        torch.ones(3)
        assert triton.run is not plain
        mode.on = False
        assert triton.run is plain
        launched(half(8, 16))
        mode.on = True
        torch.ones(3)
        assert triton.run is not plain
        with _disable_current_modes():
            launched(half(8, 16))
    assert triton.run is plain
    assert dict(twin.not_twinned) == {}
    assert errors == []


def test_a_launch_that_can_t_be_followed_ends_the_second_opinion_only(
    triton: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, name: str, tensors: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("ampdoctor.record.twin.outside.Outside.before_kernel", broken)
    x = half(8, 16)
    found = beside(launched, [x])
    assert [str(e) for e in found.errors] == ["broken"]
    assert same(found.results, alone(launched, [x]))
