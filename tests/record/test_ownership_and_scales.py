"""Whose a parameter is, which scale multiplied a gradient, and what happens where memory or torch's help is short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record import tensor_log
from ampdoctor.record.stats import StatisticsTable

if TYPE_CHECKING:
    import pytest

    from tests.record.recording import Recording


class PlainSGD:
    """An optimizer by its looks only, as some libraries have them: no class of torch, so no hooks of torch."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.param_groups = [{"params": self.parameters, "lr": 0.1}]

    def step(self) -> None:
        """Go down the gradient."""
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(parameter.grad, alpha=0.1)


def test_an_optimizer_of_no_class_of_torch_is_not_taken_to_be_skipped(recording: Recording) -> None:
    model = nn.Linear(1, 1)
    optimizer: Any = PlainSGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with recording.start():
        for _ in range(3):
            model.zero_grad()
            scaler.scale(model(torch.ones(1, 1)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [row.found_inf for row in recording.run.steps] == [False] * 3
    assert [row.applied for row in recording.run.steps] == [True] * 3


def test_a_gradient_carries_the_scale_of_its_own_pass(recording: Recording) -> None:
    main, auxiliary = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*main.parameters(), *auxiliary.parameters()], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with recording.start(model={"main": main, "auxiliary": auxiliary}):
        scaler.scale(main(torch.ones(1, 1)).sum()).backward()
        auxiliary(torch.ones(1, 1)).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    scales = {row.module: row.loss_scale for row in recording.tensors("grad_output")}
    assert scales == {"main": 64.0, "auxiliary": None}


def test_losses_of_two_scalers_are_each_divided_by_their_own_scale(recording: Recording) -> None:
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.0) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=s) for s in (8.0, 1024.0)]
    for model, weight in zip(models, (2.0, 3.0), strict=True):
        nn.init.constant_(model.weight, weight)
    with recording.start():
        for model, scaler in zip(models, scalers, strict=True):
            scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        for optimizer, scaler in zip(optimizers, scalers, strict=True):
            scaler.step(optimizer)
            scaler.update()
    assert recording.run.steps[0].loss == 5.0


def test_parameters_of_a_group_added_later_have_an_owner(recording: Recording) -> None:
    body, late = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    with recording.start(every=1, model={"body": body, "late": late}):
        body(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.add_param_group({"params": list(late.parameters())})
        late(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    reached = [call.optimizers for call in recording.calls("backward")]
    assert reached == [["optimizer0"], ["optimizer0"]]
    assert {m.module: m.optimizer for m in recording.run.modules} == {"body": "optimizer0", "late": "optimizer0"}


def test_where_memory_runs_out_a_row_is_given_up_and_nothing_else(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = StatisticsTable.measure

    def short_of_memory(table: StatisticsTable, row: int, tensor: torch.Tensor) -> None:
        if tensor.shape == (3, 2):
            raise torch.OutOfMemoryError
        measure(table, row, tensor)

    monkeypatch.setattr(StatisticsTable, "measure", short_of_memory)
    monkeypatch.setattr(tensor_log, "places_of", lambda _: None)  # as of a tensor on a device
    model = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start():
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert recording.run.info.status == "complete"
    assert {row.slot for row in recording.tensors("weight_grad")} == {"bias"}
