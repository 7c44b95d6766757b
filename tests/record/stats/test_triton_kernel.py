"""The GPU's kernel, against numpy: any bits, any length, any layout, alone and in groups.

Without a GPU the same tests run in Triton's interpreter, on the CPU: in a process of their own, as Triton asks for it
when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.record.stats import EXTRA, decode, triton_kernel, triton_launch
from ampdoctor.record.stats.triton_kernel import measure, measure_group
from tests.record.stats.reference import as_expected, expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ampdoctor.record.stats import Statistics

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
only_outside = pytest.mark.skipif(INTERPRETED, reason="not about the interpreter")

DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
BLOCK = 2048


@pytest.fixture(
    params=[pytest.param("cpu", marks=needs_triton) if INTERPRETED else pytest.param("cuda", marks=needs_gpu)]
)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """A device that everything is compiled for; numpy, the interpreter's arithmetic, is not to warn of NaN."""
    found = torch.empty(0, device=request.param).device
    assert triton_kernel.warm_up(found, [getattr(torch, dtype) for dtype in DTYPES])
    with np.errstate(all="ignore"):
        yield found


def _agrees(tensor: torch.Tensor) -> None:
    vector = measure(tensor)
    assert vector is not None
    _is_right(decode(vector.cpu().numpy()), tensor)


def _is_right(statistics: Statistics, tensor: torch.Tensor) -> None:
    found, reference = as_expected(statistics), vars(expected(tensor))
    assert found.pop("sum_squares") == pytest.approx(reference.pop("sum_squares"), rel=1e-12)
    assert found == reference


def _bits(dtype: str, count: int, seed: int = 0) -> torch.Tensor:
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count * kind.itemsize,), dtype=torch.uint8, generator=generator).view(kind)


def _normal(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("make", [_bits, _normal])
def test_any_length(dtype: str, count: int, make: Any, device: torch.device) -> None:
    _agrees(make(dtype, count).to(device))


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_bit_pattern(dtype: str, device: torch.device) -> None:
    @settings(max_examples=20, deadline=None)
    @given(
        count=st.integers(1, 40), seed=st.integers(0, 1 << 30), finite=st.booleans(), zero=st.sampled_from([0, -0.0])
    )
    def check(count: int, seed: int, finite: bool, zero: float) -> None:
        tensor = _bits(dtype, count, seed)
        if finite:
            tensor = torch.where(torch.isfinite(tensor.float()), tensor.float(), zero).to(tensor.dtype)
        _agrees(tensor.to(device))

    check()


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_every_number_of_a_short_format(dtype: str, device: torch.device) -> None:
    size = getattr(torch, dtype).itemsize
    codes = torch.arange(1 << (8 * size), dtype=torch.int32).to(torch.uint8 if size == 1 else torch.int16)
    _agrees(codes.view(getattr(torch, dtype)).to(device))


def test_the_edges_of_fp32(device: torch.device) -> None:
    info = torch.finfo(torch.float32)
    edges = [2.0**-149, 2.0**-148, 3 * 2.0**-149, info.tiny, info.tiny - 2.0**-149, info.max, -info.max, 1.0, 0.0, -0.0]
    payloads = torch.tensor([0x7F800001, 0x7FFFFFFF, -0x7FFFFF, -1, 0x7FC00000], dtype=torch.int32).view(torch.float32)
    _agrees(torch.tensor(edges, device=device))
    _agrees(torch.cat([torch.tensor([*edges, float("inf"), float("-inf"), float("-inf")]), payloads]).to(device))


@pytest.mark.parametrize("special", [[], [0], [4 * BLOCK + 1], [7 * BLOCK + 3], [5, 2 * BLOCK]])
@pytest.mark.parametrize("tail", [0, 9])
def test_programs_share_a_tensor(
    special: list[int], tail: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them meet what is not finite, and whichever has the end."""
    tensor = _normal("bfloat16", 7 * BLOCK + max(tail, 4 if 7 * BLOCK + 3 in special else 0))
    tensor[special] = float("-inf")
    for programs in (1, 3, 100):
        monkeypatch.setitem(triton_kernel._ready, (device, tensor.dtype), programs)
        _agrees(tensor.to(device))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:], lambda x: x.reshape(-1)[1:], lambda x: x[0, 0],
        lambda x: x.expand(3, 4, 6), lambda x: x.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        lambda x: x[:0], lambda x: x.flip(0), lambda x: x.clone().requires_grad_().t(), torch.nn.Parameter,
        lambda x: torch.complex(x.float(), x.float()).conj(), lambda x: torch.complex(x.float(), x.float()).conj().imag,
    ],
    ids=[
        "t", "strided", "cut", "unaligned", "0-d", "expanded", "channels-last", "empty", "flip", "trained", "parameter",
        "conjugate", "negative",
    ],
)  # fmt: skip
def test_views(view: Any, dtype: str, device: torch.device) -> None:
    x = _normal(dtype, 4, 6)
    x[0, 0], x[1, 1], x[2, 2] = float("inf"), float("nan"), 0.0
    tensor = view(x.to(device))
    vector = measure(tensor)
    assert vector is not None
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    _is_right(decode(vector.cpu().numpy()), real)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_group_in_one_launch(dtype: str, device: torch.device) -> None:
    sizes = [3, 0, 1, BLOCK, 2 * BLOCK + 1, 0, 17, 5 * BLOCK - 1]
    parts = [_bits(dtype, n, n).to(device) for n in sizes]
    tensors = [*parts, parts[3][1:], parts[4][: 2 * BLOCK].reshape(4, -1).t(), parts[6][::2]]
    vectors = measure_group(tensors)
    assert vectors is not None
    assert vectors.shape == (len(tensors), EXTRA)
    for vector, tensor in zip(vectors.cpu().numpy(), tensors, strict=True):
        _is_right(decode(vector), tensor)


def test_what_a_group_can_t_be(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    assert measure_group([]) is None
    assert measure_group([x, x.half()]) is None
    assert measure_group([x.double()]) is None
    assert measure_group([x, torch._efficientzerotensor((3,), device=device)]) is None


def test_what_is_left_to_torch(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    assert measure(x) is not None
    assert measure(x.double()) is None
    assert measure(x.to(torch.complex128)) is None
    assert measure(torch._efficientzerotensor((3,), device=device)) is None


def test_rows_of_a_table_take_the_numbers(device: torch.device) -> None:
    table = torch.zeros((3, EXTRA), dtype=torch.float64, device=device)
    tensors = [_normal("float16", n).to(device) for n in (5, BLOCK, BLOCK + 7)]
    for row, tensor in zip(table, tensors, strict=True):
        assert measure(tensor, row) is row
    for row, tensor in zip(table.cpu().numpy(), tensors, strict=True):
        _is_right(decode(row), tensor)


@pytest.mark.gpu
def test_nothing_waits_and_nothing_is_compiled(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type != "cuda":
        pytest.skip("needs a CUDA device")
    triton: Any = import_module("triton")
    compiled: list[Any] = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **told: compiled.append(told))
    tensors = [_bits(dtype, n).to(device) for dtype in DTYPES for n in (1, 16, 1000, 3 * BLOCK)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        vectors = [measure(view) for t in tensors for view in (t, t[1:], t[::2])]
        groups = [measure_group(tensors[at : at + 4]) for at in range(0, len(tensors), 4)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not compiled
    assert all(v is not None for v in [*vectors, *groups])


@pytest.mark.gpu
def test_more_elements_than_32_bits_count(device: torch.device) -> None:
    count = (1 << 31) + 5
    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 3 * count:
        pytest.skip("needs a CUDA device with 7 GB of free memory")
    tensor = torch.full((count,), 0.5, dtype=torch.float16, device=device)
    tensor[-1] = float("inf")
    vector = measure(tensor)
    assert vector is not None
    found = as_expected(decode(vector.cpu().numpy()))
    assert (found["exponents"], found["posinf"], found["absmax"]) == ({-1: count - 1}, 1, 0.5)
    assert found["sum_squares"] == pytest.approx((count - 1) / 4, rel=1e-12)


@only_outside
@needs_triton
@pytest.mark.slow
def test_all_of_this_in_the_interpreter(repository: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu and not slow", __file__]
    ended = subprocess.run(
        command, cwd=repository, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout


@only_outside
def test_it_is_there_where_triton_is() -> None:
    assert triton_kernel.available() == (find_spec("triton") is not None)


@only_outside
def test_no_step_before_it_is_warm_and_no_cpu_is_measured_by_it() -> None:
    x = torch.ones(3)
    assert not triton_kernel.warm_up(x.device)
    assert measure(x) is None
    assert measure_group([x]) is None


def test_without_triton_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "program", lambda: None)
    assert not triton_kernel.available()
    assert not triton_kernel.warm_up(torch.device("cuda"))


@only_outside
def test_triton_is_imported_on_request_only(repository: Path) -> None:
    code = "import sys, ampdoctor.record.stats.triton_kernel; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=repository, check=False).returncode == 0
