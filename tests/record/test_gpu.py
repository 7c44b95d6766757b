"""What only a GPU can show: no wait for the device, and the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.record.stats import decode, statistics_vector
from tests.record.models import CLASSES, FEATURES
from tests.record.stats.reference import as_expected, expected
from tests.record.training import Outcome, seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.record.recording import Recording

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

STEPS = 10


@pytest.fixture
def _sync_is_an_error() -> Iterator[None]:
    torch.zeros(1, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def _train(steps: int, *, weights: torch.dtype = torch.float32, scaled: bool = True) -> Outcome:
    """FP16 autocast and a fused optimizer: a loop that never waits for the device itself."""
    seed()
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(32, CLASSES))
    model.to("cuda", weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=4, enabled=scaled)
    target = torch.arange(4, device="cuda") % CLASSES
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(4, FEATURES, device="cuda", dtype=weights)
        with torch.autocast("cuda", torch.float16, enabled=scaled):
            loss = F.cross_entropy(model(x).float(), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    with_syncs = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    outcome = Outcome.of(
        losses=[x.cpu() for x in losses], parameters=[p.cpu() for p in model.parameters()],
        state=[v.cpu() for s in optimizer.state.values() for v in s.values()], cuda=torch.cuda.get_rng_state(),
    )  # fmt: skip
    torch.cuda.set_sync_debug_mode(with_syncs)
    return outcome


@pytest.mark.usefixtures("_sync_is_an_error")
@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize(
    "settings", [{}, {"weights": torch.bfloat16, "scaled": False}], ids=["fp16-scaled", "bf16-weights"]
)
def test_recording_never_waits_for_the_device(recording: Recording, settings: dict[str, Any], every: int) -> None:
    with recording.start(every=every):
        _train(STEPS, **settings)
    assert recording.run.info.status == "complete"
    assert len(recording.run.steps) == STEPS


@pytest.mark.parametrize("settings", [{}, {"weights": torch.bfloat16, "scaled": False}], ids=["scaled", "bf16"])
def test_the_bits_are_the_same(recording: Recording, settings: dict[str, Any]) -> None:
    alone = _train(STEPS, **settings)
    with recording.start(every=1):
        assert _train(STEPS, **settings).differences(alone) == []


def test_a_fused_optimizer_that_skips(recording: Recording) -> None:
    with recording.start(every=1):
        _train(STEPS)
    run = recording.run
    skipped = [row.step for row in run.steps if row.found_inf]
    assert skipped
    assert [e.step for e in run.scaler if e.event == "skip"] == skipped
    assert [row.step for row in run.steps if row.applied is False] == skipped


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_statistics_are_those_of_numpy(dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**62), 2**62, (4096,), generator=torch.Generator().manual_seed(0))
    values = bits.view(dtype)
    found = as_expected(decode(statistics_vector(values.cuda()).cpu().numpy()))
    reference = vars(expected(values))
    assert found.pop("sum_squares") == pytest.approx(reference.pop("sum_squares"), rel=1e-9)
    assert found == reference


def test_deterministic_algorithms_and_a_default_device(recording: Recording) -> None:
    torch.use_deterministic_algorithms(True)
    torch.set_default_device("cuda")
    try:
        with recording.start(every=1):
            _train(4)
    finally:
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
    assert recording.run.info.status == "complete"


def test_a_step_in_a_cuda_graph_is_left_alone(recording: Recording) -> None:
    model = nn.Linear(FEATURES, CLASSES).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    x, target = torch.randn(4, FEATURES, device="cuda"), torch.randn(4, CLASSES, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(x), target).backward()
        optimizer.step()

    with recording.start(every=1):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        before = model.weight.detach().clone()
        graph.replay()
        assert not torch.equal(model.weight, before)
    assert recording.run.info.status == "complete"


def test_a_worker_that_is_forked_while_numbers_are_on_their_way(recording: Recording) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, FEATURES)), num_workers=2)
    with recording.start(every=1):
        _train(2)
        assert len(list(loader)) == 8
        _train(2)
    assert len(recording.run.steps) == 4
