"""What keeps a step from its second opinion, and what must not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from ampdoctor.record import headroom
from ampdoctor.record.twin import obstacles, opinions
from ampdoctor.trace.schema import StepRow
from tests.record.twin.cases import CASES
from tests.record.twin.recorded import EARLY, opinion, recorded, recording, trained
from tests.record.twin.setting import Setting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.recording import Recording

LOW = Setting(scale=2.0**-6)


def mlp() -> Any:
    return trained(CASES[0], LOW, EARLY + 2)[0]


def test_on_a_device_where_they_were_never_tried_they_are_there_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstacles, "device_in_use", lambda: torch.device("cuda", 0))
    plain, run = recorded(tmp_path / "default", mlp)
    assert "not been tried on cuda" in (opinion(run).declined or "")
    assert "--prove" in (opinion(run).declined or "")
    assert not run.twins
    found, run = recorded(tmp_path / "asked", mlp, prove=True)
    assert opinion(run).declined is None
    assert run.twins
    assert found.differences(plain) == []


@pytest.mark.parametrize(("ranks", "declines"), [(1, False), (2, True)])
def test_several_ranks_are_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, declines: bool
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    monkeypatch.setattr(opinions, "obstacle", obstacles.obstacle)
    assert obstacles.several_ranks() == declines
    assert ("several ranks" in (obstacles.obstacle(asked=True) or "")) == declines


def test_an_error_in_a_thread_of_autograd_s_leaves_no_mode_behind(tmp_path: Path) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            def fail() -> None:
                with recorder._guard:
                    raise ValueError("of ours")

            if step == EARLY:
                thread = threading.Thread(target=fail)
                thread.start()
                thread.join()
            return gradient

    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording(tmp_path / "run") as recorder:
        recorder._guard.strict = False
        for step in range(EARLY + 2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = Failing.apply(model(torch.randn(4, 8)))  # type: ignore[no-untyped-call]
                loss = out.float().square().mean()
            loss.backward()
            optimizer.step()
            if step >= EARLY:
                assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_of_two_scalers_the_one_just_used_counts(recording: Recording) -> None:
    models = [nn.Linear(8, 1), nn.Linear(8, 1)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**k) for k in (4, 12)]
    with recording.start():
        for _ in range(EARLY + 1):
            for n in (1, 0):  # the other way round than they were made
                optimizers[n].zero_grad()
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = models[n](torch.randn(4, 8)).float().square().mean()
                scalers[n].scale(loss).backward()
                scalers[n].step(optimizers[n])
                scalers[n].update()
    found = {(row.optimizers or ["?"])[0]: row.micro_batch for row in recording.calls("backward") if row.step == EARLY}
    assert len(found) == 2
    scales = [
        (row.numel, row.loss_scale) for row in recording.run.twins if row.role == "loss" and row.counterfactual == "run"
    ]
    assert [scale for _, scale in scales] == [2.0**12, 2.0**4]


def test_a_parameter_without_elements_is_no_obstacle(recording: Recording) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(0))])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start():
        for _ in range(EARLY + 1):
            optimizer.zero_grad()
            (model[0].half().sum() + model[1].sum()).backward()
            optimizer.step()
    assert recording.run.info.status == "complete"
    assert len(recording.run.steps) == EARLY + 1


def test_a_failure_that_shows_too_late_is_told(recording: Recording) -> None:
    with recording.start() as recorder:
        recorder._opinions.missed("skip", 7)
        recorder._opinions.missed("skip", 8)
        recorder._opinions.missed("plateau", 9)
        torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1).step()
    (row,) = recording.run.twin_steps
    assert (row.step, row.kind, row.reason) == (7, "replay", "skip")
    assert "before the optimizer had stepped" in (row.declined or "")
    assert all(isinstance(step, StepRow) for step in recording.run.steps)


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("max", "5", 4096.0), ("3000", "1000", 2000.0), ("900000", "1", 4096.0), ("", "", 4096.0)],
)
def test_a_container_s_limit_counts(monkeypatch: pytest.MonkeyPatch, limit: str, used: str, free: float) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 4 kB\n",
        "/sys/fs/cgroup/memory.max": f"{limit}\n",
        "/sys/fs/cgroup/memory.current": f"{used}\n",
    }
    monkeypatch.setattr(headroom, "_read", files.__getitem__)
    assert headroom.room(torch.device("cpu")) == 0.5 * free
    assert headroom.room_beside_step(torch.device("cpu")) == 0.5 * free
    assert headroom.room(torch.device("meta")) == 0.0
