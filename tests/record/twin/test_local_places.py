"""Where local twins say that an operation is, and what they add up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.record.twin.local_rows import Locally, row_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.trace.schema import OpRow

HALF, BRAIN = torch.float16, torch.bfloat16


def line_of(text: str) -> int:
    """Return the line of this file that ends with the comment `text`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


class Doubled(torch.autograd.Function):
    """An operation with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.div(0.5)  # doubled


class Block(nn.Module):
    """A layer and something functional behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)  # layer
        return F.gelu(x)  # gelu


def grown(x: torch.Tensor) -> torch.Tensor:
    """A function without a module."""
    return torch.exp(x)  # exp


class Net(nn.Module):
    """Blocks, plain or checkpointed, and a function of the user's."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.block = Block()
        self.run = partial(checkpoint, use_reentrant=reentrant) if reentrant is not None else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.run(self.block, x) if self.run else self.block(x)
        x = self.run(grown, x) if self.run else grown(x)
        doubled: torch.Tensor = Doubled.apply(x)  # type: ignore[no-untyped-call]
        return doubled


def step_rows(reentrant: bool | None = None, times: int = 1) -> list[OpRow]:
    locally = Locally()
    model = Net(reentrant).to(BRAIN)
    locally.follow(model)
    x = torch.randn(2, 4, dtype=BRAIN, requires_grad=True)
    with locally.mode:
        for _ in range(times):
            model(x).backward(torch.ones(2, 4, dtype=BRAIN))
            locally.log.micro_batch += 1
    return locally.rows()


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_module_direction_and_line(reentrant: bool | None) -> None:
    rows = step_rows(reentrant)

    found = {(r.op.removeprefix("aten."), r.direction): (r.module, r.line) for r in rows}
    assert {r.file for r in rows} == {"tests/record/twin/test_local_places.py"}
    assert found["addmm", "forward"] == ("block.layer", line_of("layer"))
    assert found["mm", "backward"] == ("block.layer", line_of("layer"))
    assert found["gelu", "forward"] == ("block", line_of("gelu"))
    assert found["gelu_backward", "backward"] == ("block", line_of("gelu"))
    assert found["exp", "forward"][1] == line_of("exp")
    assert found["mul", "backward"][1] == line_of("exp")
    assert found["div", "backward"] == ("", line_of("doubled"))
    assert {r.function for r in rows} >= {"forward", "backward"}


def in_thread(act: Callable[[], Any]) -> Any:
    """Let another thread do it, and return what it does; it numbers its nodes from 0."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_backward_in_a_device_s_thread(reentrant: bool | None) -> None:
    """On CUDA it is a thread of autograd's that runs backward and what checkpoints compute again."""
    expected = {(r.op, r.direction): (r.module, r.line) for r in step_rows(reentrant)}
    rows = in_thread(lambda: rows_with_backward_elsewhere(reentrant))
    assert {(r.op, r.direction): (r.module, r.line) for r in rows} == expected


def rows_with_backward_elsewhere(reentrant: bool | None) -> list[OpRow]:
    """Train in this thread, whose nodes have few numbers yet, and run backward in another."""
    locally, model = Locally(), Net(reentrant).to(BRAIN)
    locally.follow(model)
    x = torch.randn(2, 4, dtype=BRAIN, requires_grad=True)

    def backward() -> None:
        while torch._C._autograd._get_sequence_nr() < first:
            # Its nodes will have the numbers of the training's.
            torch.ones(2, requires_grad=True).mul(2)
        with locally.mode:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.run_backward((result,), (torch.ones(2, 4, dtype=BRAIN),), False, False, (), True, True)  # fmt: skip

    first = torch._C._autograd._get_sequence_nr()
    with locally.mode:
        result = model(x)
    in_thread(backward)
    return locally.rows()


def test_threads_number_their_nodes_for_themselves() -> None:
    rows = in_thread(rows_beside_another_thread)
    found = {(r.op, r.direction): (r.module, r.line) for r in rows}
    assert found["aten.gelu_backward", "backward"] == ("block", line_of("gelu"))
    assert found["aten.mm", "backward"] == ("block.layer", line_of("layer"))


def rows_beside_another_thread() -> list[OpRow]:
    """Train in this thread while another one gives its nodes the same numbers."""
    locally, model = Locally(), Net(None).to(BRAIN)
    locally.follow(model)
    x = torch.randn(2, 4, dtype=BRAIN, requires_grad=True)

    def elsewhere() -> None:
        number = torch._C._autograd._get_sequence_nr
        with locally.mode:
            while number() < ahead + 20:
                torch.ones(2, dtype=BRAIN, requires_grad=True).mul(2)

    with locally.mode:
        result = model(x)
        ahead = torch._C._autograd._get_sequence_nr()
        in_thread(elsewhere)
        result.backward(torch.ones(2, 4, dtype=BRAIN))
    return locally.rows()


def test_what_a_checkpoint_computes_again_is_forward() -> None:
    rows = step_rows(reentrant=False)

    assert sum(r.calls for r in rows if r.op == "aten.addmm") == 2
    assert {r.direction for r in rows if r.op == "aten.addmm"} == {"forward"}
    assert {r.direction for r in rows if r.op == "aten.exp"} == {"forward"}


def test_passes_are_told_apart() -> None:
    rows = [r for r in step_rows(times=2) if r.op == "aten.gelu"]

    assert [(r.micro_batch, r.calls) for r in rows] == [(0, 1), (1, 1)]
    assert rows[0].seq < rows[1].seq


def test_calls_of_one_line_are_added_up() -> None:
    small, large = torch.full((3,), 2.0**-13, dtype=HALF), torch.full((5,), 300.0, dtype=HALF)

    row = row_of(lambda: [x * x for x in (large / 2, small, large, small)], "mul")

    assert (row.calls, row.numel, row.flushed, row.born) == (4, 16, 6, 5)
    assert (row.absmax, row.overflowed) == (90000.0, 5)
    assert row.first_lost is not None
    assert row.first_born is not None
    assert row.seq < row.first_lost < row.first_born


def test_lines_and_dtypes_are_told_apart() -> None:
    x = torch.ones(3)

    rows = rows_of(lambda: (x.to(HALF), x.to(BRAIN),
                            x.to(HALF)))  # fmt: skip

    assert [(r.dtype_out, r.calls) for r in rows] == [("float16", 1), ("bfloat16", 1), ("float16", 1)]


def test_the_loss_scale_is_that_of_the_pass() -> None:
    locally = Locally()
    x = torch.ones(3, dtype=BRAIN, requires_grad=True)

    with locally.mode:
        y = x * x
        locally.log.pass_scale = 1024.0
        y.sum().backward()

    scales = {(r.direction, r.loss_scale) for r in locally.rows()}
    assert scales == {("forward", None), ("backward", 1024.0)}
