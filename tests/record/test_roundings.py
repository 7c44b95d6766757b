"""Whole numbers, phases, casts to FP8 and what is sent in half, as they are rounded in a training."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from ampdoctor.record.roundings import chunks, narrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ampdoctor.trace.schema import RoundingRow
    from tests.record.recording import Recording

BF16, FP16 = torch.bfloat16, torch.float16
E4M3 = torch.float8_e4m3fn


def rows(recording: Recording, kind: str) -> list[RoundingRow]:
    """Return the rows of a kind."""
    return [r for r in recording.run.roundings if r.kind == kind]


def train(
    recording: Recording, make: Callable[[], Any], each: Callable[[Any], Any] = lambda made: made, steps: int = 2
) -> None:  # fmt: skip
    """Record a training that makes something before its first step, and does something in each."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(every=1):
        made = make()
        for _ in range(steps):
            each(made)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("make", "changed", "distinct", "after", "even"),
    [
        (lambda: torch.arange(1024).to(BF16), 512, 1024, 513, True),
        (lambda: torch.arange(1024, dtype=BF16), 512, 1024, 513, True),
        (lambda: torch.arange(0, 300).float()[:, None].to(BF16), 22, 300, 279, True),
        (lambda: torch.ones(2, 600).bfloat16().cumsum(1), 388, 600, 406, True),
        (lambda: torch.empty(3000, dtype=FP16).copy_(torch.arange(3000)), 476, 3000, 2525, True),
        (lambda: torch.tensor([1, 257, 600, 90001]).bfloat16(), 2, 4, 4, False),
    ],
    ids=["cast", "arange", "float", "cumsum", "copy", "scattered"],
)
def test_whole_numbers_that_are_changed(
    recording: Recording, make: Any, changed: int, distinct: int, after: int, even: bool
) -> None:
    train(recording, make)
    (row,) = rows(recording, "integers")
    assert (row.changed, row.distinct, row.distinct_after, row.even_steps) == (changed, distinct, after, even)
    assert str(row.file).endswith("test_roundings.py")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(257).bfloat16(),
        lambda: torch.arange(2049).half(),
        lambda: torch.randint(0, 256, (64,), dtype=torch.uint8).bfloat16(),
        lambda: (torch.arange(1000.0) / 1000).to(BF16),
        lambda: torch.arange(1000).float(),
        lambda: torch.full((3, 3), 1e30).half(),
        lambda: torch.cumsum(torch.ones(600).bfloat16(), 0, out=torch.empty(600, dtype=BF16)),
    ],
    ids=["bf16", "fp16", "bytes", "fractions", "fp32", "infinite", "out"],
)
def test_what_is_held_is_not_told(recording: Recording, make: Any) -> None:
    train(recording, make)
    assert not rows(recording, "integers")
    assert rows(recording, "watched")


def test_what_changed_numbers_lead_to(recording: Recording) -> None:
    def make() -> Any:
        t = torch.arange(600).bfloat16()
        angles = t.float()[:, None] * torch.rand(4)
        weight = torch.arange(700).bfloat16() / 700
        return angles.sin(), t.long(), weight

    def each(made: Any) -> None:
        w = torch.rand(700, requires_grad=True)
        ((w * 2) * made[2]).sum()

    train(recording, make, each)
    first, second = rows(recording, "integers")
    assert first.led_to == ["integer", "sin"]
    assert second.led_to == ["weight"]


def test_phases_in_half_and_frequencies_that_were(recording: Recording) -> None:
    positions, frequencies = torch.arange(500.0), torch.tensor([1.0, 0.1])

    def make() -> Any:
        return torch.outer(positions.bfloat16(), frequencies.bfloat16()).cos()

    def each(table: Any) -> None:
        torch.randn(500, 2).bfloat16() * table
        (positions[:, None] @ frequencies.bfloat16().float()[None, :]).sin()
        (torch.rand(5, 1) @ frequencies.bfloat16().float()[None, :]).sin()
        torch.outer(positions, frequencies).sin().bfloat16()

    train(recording, make, each, steps=1)
    half, wide = rows(recording, "phases")
    assert (half.op, half.dtype_in, half.dtype_out, half.led_to) == (
        "aten.cos", "bfloat16", "bfloat16", ["product"],
    )  # fmt: skip
    assert half.largest == 500.0  # 499 in BF16
    assert (wide.op, wide.dtype_in, wide.dtype_out) == ("aten.sin", "float32", "bfloat16")


@pytest.mark.parametrize("clamp", [True, False])
def test_a_cast_to_fp8_on_each_examined_step(recording: Recording, clamp: bool) -> None:
    scale = torch.tensor([1.0])

    def each(_: Any) -> None:
        x = torch.tensor([1e-4, 1.0, 100.0, 448.0, 460.0, 1000.0]) * scale
        (x.clamp(-448.0, 448.0) if clamp else x).to(E4M3)
        scale.mul_(0.01)

    train(recording, lambda: None, each, steps=3)
    looks = rows(recording, "float8")
    assert [r.step for r in looks] == [0, 1, 2]
    # 460 still rounds to 448; 1000 does not.
    assert [(r.beyond, r.flushed) for r in looks] == [(1, 1), (0, 1), (0, 2)]
    assert looks[0].energy_beyond == pytest.approx(552**2 / (1 + 1e4 + 448**2 + 460**2 + 1e6))
    assert looks[0].largest == 1000.0


@pytest.fixture
def _one_rank(tmp_path: Path) -> Iterator[None]:
    hook = sys.excepthook  # torch puts its own there
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    sys.excepthook = hook


@pytest.mark.usefixtures("_one_rank")
def test_a_communication_hook_and_what_it_sends(recording: Recording) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(every=1):
        model.register_comm_hook(None, fp16_compress_hook)
        for _ in range(2):
            (model(torch.tensor([[1e-9, 1.0, 1e6]])).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    (call,) = recording.calls("comm_hook")
    assert call.target == "fp16_compress_hook"
    sent = rows(recording, "sent")
    assert [r.step for r in sent] == [0, 1]
    assert {(r.dtype_out, r.nonzero, r.flushed, r.beyond) for r in sent} == {("float16", 3, 1, 1)}


@pytest.mark.usefixtures("_one_rank")
def test_what_rounds_back_to_the_largest_number_is_not_beyond_it(recording: Recording) -> None:
    gradient = torch.tensor([65504.0, 65510.0, 65519.0, 65520.0, float("inf")])
    train(recording, lambda: None, lambda _: dist.all_reduce(gradient.half()), steps=1)
    (row,) = rows(recording, "sent")
    assert (row.beyond, row.largest) == (1, 65520.0)
    squares = sum(x**2 for x in (65504.0, 65510.0, 65519.0, 65520.0))
    assert row.rms == pytest.approx((squares / 5) ** 0.5)


@pytest.mark.usefixtures("_one_rank")
def test_what_may_be_sent_is_kept_within_bounds(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "_MOST_BYTES_KEPT", 1000)  # a pair of 100 elements takes 600

    def each(_: Any) -> None:
        halves = [torch.full((n,), 1e-9).half() for n in (100, 100, 200)]
        for half in halves:
            dist.all_reduce(half)

    train(recording, lambda: None, each, steps=1)
    (row,) = rows(recording, "sent")
    assert (row.calls, row.numel) == (1, 100)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (1, 1, 13), (4, 1, 3), ()])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_pieces_of_a_tensor_are_the_whole_of_it(
    shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    values = torch.randn(shape) * 1000
    pieces = list(chunks.chunks(values.mT if values.ndim > 1 else values, values.mT if values.ndim > 1 else values))
    assert sum(first.numel() for first, _ in pieces) == values.numel()
    assert all(first.numel() <= chunk and torch.equal(first, second) for first, second in pieces)
    assert all(first.untyped_storage().data_ptr() == values.untyped_storage().data_ptr() for first, _ in pieces)


def test_large_tensors_are_told_of_as_small_ones(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 100)

    def make() -> None:
        torch.arange(1024).to(BF16)
        torch.tensor([1e-4] * 300 + [1.0, 460.0, 1000.0]).to(E4M3)

    train(recording, make)
    (whole,), (cast,) = rows(recording, "integers"), rows(recording, "float8")
    assert (whole.changed, whole.distinct, whole.numel) == (512, 1024, 1024)
    assert (cast.nonzero, cast.flushed, cast.beyond, cast.largest) == (303, 300, 1, 1000.0)


@pytest.mark.usefixtures("_one_rank")
def test_gradients_reduced_by_hand(recording: Recording) -> None:
    def each(_: Any) -> None:
        gradient = torch.tensor([1e-9, 1.0])
        dist.all_reduce(gradient.half())
        dist.all_reduce(gradient)

    train(recording, lambda: None, each, steps=1)
    (row,) = rows(recording, "sent")
    assert (row.nonzero, row.flushed, row.beyond) == (2, 1, 0)


def test_compiling_ends_it(recording: Recording) -> None:
    """A mode would keep code from being compiled; what was seen before is told, and nothing is passed."""

    def make() -> Any:
        torch.arange(1024).bfloat16()
        torch.compile(lambda x: x + 1, backend="eager")
        assert not torch._C._len_torch_dispatch_stack()
        torch.arange(2048).bfloat16()

    train(recording, make)
    (row,) = rows(recording, "integers")
    assert row.distinct == 1024
    assert not rows(recording, "watched")


def test_nothing_is_left_after_the_first_step(recording: Recording) -> None:
    compile_function = torch.compile
    wrapped: list[bool] = []
    train(
        recording, lambda: None, lambda _: wrapped.append(torch.compile is not compile_function), steps=4
    )  # fmt: skip
    assert wrapped == [True, False, False, False]
    assert [r.step for r in rows(recording, "watched")] == [0]
