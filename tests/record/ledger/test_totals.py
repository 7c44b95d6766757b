"""Components add up to what lives, and a step with a ledger is the same to the bit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.record.ledger.holdings import Holdings
from ampdoctor.record.ledger.ledger import Ledger
from ampdoctor.record.ledger.saved import saved_tensors
from ampdoctor.record.ledger.storages import totals
from ampdoctor.record.live_objects import live_instances
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from tests.record import models
from tests.record.recording import Recording
from tests.record.test_bit_identity import MODELS
from tests.record.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.record.ledger.books import Book


def _living(graph: Iterable[torch.Tensor] = ()) -> int:
    """Return the bytes of all storages that Python objects or the graph of a loss hold."""
    sizes = {}
    for tensor in (*live_instances(torch.Tensor), *saved_tensors(graph)):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            storage = tensor.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def _failed(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", ["mlp", "convnet", "residual", "transformer", "gru", "tied", "checkpointed"])
def test_components_add_up_to_the_storages_that_live(name: str, half: bool) -> None:
    make: Callable[[], torch.nn.Module] = MODELS[name]
    model = make()
    optimizer = torch.optim.AdamW(model.parameters())
    ledger = Ledger(Holdings(list(model.named_modules()), [optimizer]), None)
    x = torch.randn(4, models.FEATURES)
    ledger.begin(live_instances(torch.Tensor))
    living = []
    with TwinMode([ledger], Places(lines=False), _failed):
        with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
            out = model(x)
        loss = out.float().square().mean()
        del out
        ledger.backward_begins([loss])
        living.append(_living([loss]))
        loss.backward()
        ledger.optimizer_begins()
        living.append(_living())
        optimizer.step()
        ledger.end()
        living.append(_living())
    counted = [dict(totals(ledger.storages.at(mark.moment)))["cpu"] for mark in ledger.marks]
    assert [mark.phase for mark in ledger.marks] == ["forward", "backward", "step"]
    assert counted == living
    assert ledger.storages.held()["cpu"] == living[-1]
    peak = ledger.storages.at(ledger.storages.peaks()["cpu"])
    assert dict(totals(peak))["cpu"] >= max(counted)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_with_a_ledger_is_the_same(name: str, precision: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": MODELS[name], "precision": precision, "init_scale": 2.0**10}
    alone = Training(**settings).run(8)
    recording = Recording(tmp_path / "run")
    with recording.start(strict=True):
        recorded = Training(**settings).run(8)
    assert alone.differences(recorded) == []
    assert {row.phase for row in recording.run.memory} == {"forward", "backward", "step", "peak"}
    assert recording.run.timings


def test_numbers_of_ours_that_wait_are_not_counted(mlp_book: Book) -> None:
    assert [row for row in mlp_book.memory if row.dtype == "float64"] == []


def test_the_operations_that_autocast_acts_on_run_under_it(mlp_book: Book) -> None:
    forward = {row.op: row for row in mlp_book.timings if row.direction == "forward"}
    # Autocast is switched off while it calls them itself.
    assert forward["aten.addmm"].autocast == "bfloat16"
    assert forward["aten.relu_"].autocast == "bfloat16"
    assert forward["aten.pow"].autocast is None  # the loss, which is not under it
    assert {row.autocast for row in mlp_book.timings if row.direction != "forward"} == {None}


@pytest.fixture
def mlp_book(recording: Recording) -> Book:
    """A model under autocast, with the second opinion of its early steps waiting to be written."""
    from tests.record.ledger.books import keep

    model = models.mlp()
    return keep(recording, model, torch.optim.AdamW(model.parameters()), lambda: torch.randn(4, 8), half=True)
