"""Graphs that are not the usual ones: computed again, offloaded, several a step, with functions of the user's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampdoctor.record.ledger.saved import saved_tensors
from tests.record.ledger.books import book_of, keep
from tests.record.recording import Recording

FP32 = "float32"


class _Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.middle = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant)))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_of_a_checkpointed_region_only_its_input_is_kept(reentrant: bool, half: bool, recording: Recording) -> None:
    model = _Checkpointed(reentrant=reentrant)
    book = keep(recording, model, torch.optim.SGD(model.parameters()), lambda: torch.randn(32, 8), half=half)
    width, dtype = (2, "bfloat16") if half else (4, FP32)
    kept = {
        ("0" if half else None, dtype): 32 * 8 * width,  # the batch
        ("first", dtype): 32 * 16 * width,  # the region's input
        ("middle.2", dtype): 32 * 16 * width,  # its output, for the last weight
        ("last" if not half else None, FP32): 32 * 4 * 4,  # for the square
    }
    if half:
        kept[("first", dtype)] += kept.pop(("0", dtype))  # the batch as the first layer casts it
    found = book.bytes("forward", "activations", "module", "dtype")
    assert found.pop((None, "uint8")) == torch.get_rng_state().nbytes  # for dropout in the region
    assert found == kept
    inner = [r for r in book.memory if r.component == "activations" and r.module in {"middle.0", "middle.1"}]
    assert not [r for r in inner if r.phase == "forward"]


def test_gradient_accumulation_shows_gradients_beside_activations(recording: Recording) -> None:
    model = nn.Linear(8, 16, bias=False)
    book = keep(recording, model, torch.optim.SGD(model.parameters()), lambda: torch.randn(32, 8), micro_batches=3)
    # The last micro-batch takes most: gradients are there already, and so are the inputs of those before, which we keep
    # until the step is over, to execute it again if it fails.
    assert book.bytes("forward", "gradients") == 4 * 128
    assert book.bytes("forward", "activations") == 4 * (3 * 32 * 8 + 32 * 16)
    assert book.bytes("backward", "gradients") == 4 * 128


def test_offloaded_activations_are_counted_where_they_are_packed(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters())
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: ("moved", t.clone()), lambda packed: packed[1]):
                out = model(torch.randn(32, 8))
            out.square().mean().backward()
            optimizer.step()
    by_kind = book_of(recording).bytes("forward", "activations", "dtype")
    # The hooks copy each saved tensor: the batch, tanh's result twice, and the second weight, whose copy is no weight.
    # The loss is computed outside of them.
    assert by_kind == {FP32: 4 * (32 * 8 + 2 * 32 * 16 + 16 * 4 + 32 * 4)}


def test_saving_on_the_cpu_works_as_without_us(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    with torch.autograd.graph.save_on_cpu():
        book = keep(recording, model, torch.optim.SGD(model.parameters()), lambda: torch.randn(32, 8))
    # On a CPU it copies nothing.
    assert book.bytes("forward", "activations") == 4 * (32 * 8 + 32 * 16 + 32 * 4)


def test_hooks_of_the_user_are_called_as_without_us(tmp_path: Any) -> None:
    def train(recorded: bool) -> tuple[list[str], list[float]]:
        torch.manual_seed(0)
        told: list[str] = []
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []

        def packed(t: torch.Tensor) -> torch.Tensor:
            told.append("pack")
            return t

        def unpacked(t: torch.Tensor) -> torch.Tensor:
            told.append("unpack")
            return t

        def loop() -> None:
            for _ in range(6):
                optimizer.zero_grad()
                with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):
                    loss = model(torch.randn(4, 8)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())

        if recorded:
            recording = Recording(tmp_path / "run")
            with recording.start(model=model, optimizer=optimizer, strict=True):
                loop()
            assert recording.run.memory
        else:
            loop()
        return told, losses

    assert train(recorded=True) == train(recorded=False)


class _Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        square = x * x
        ctx.save_for_backward(x, square)
        ctx.by_hand = x.sign()
        return square * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        _, square = ctx.saved_tensors
        return torch.as_tensor(3 * square * grad)


class _Cubic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(_Cubed.apply(self.linear(x)))  # type: ignore[no-untyped-call]


def test_functions_of_the_user(recording: Recording) -> None:
    model = _Cubic()
    book = keep(recording, model, torch.optim.SGD(model.parameters()), lambda: torch.randn(32, 8))
    # The batch, x and its square, the output (for the loss), and what hangs on `ctx` beside `save_for_backward`.
    assert book.bytes("forward", "activations") == 4 * (32 * 8 + 4 * 32 * 16)


def test_a_graph_that_is_gone_holds_nothing() -> None:
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    assert list(saved_tensors([y])) == []


def test_a_ledger_that_fails_ends_and_nothing_else_does(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no tensors here")

    monkeypatch.setattr("ampdoctor.record.ledger.look._others", fail)
    recording, model = Recording(tmp_path / "run"), nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, optimizer=optimizer, strict=False) as recorder:
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        assert recorder._looks.places is None
    assert (recording.run.info.status, len(recording.run.steps), recording.run.memory) == ("complete", 8, [])
