"""Activations and their gradients: which calls of which modules are recorded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.record import models

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.recorder import Recorder
    from tests.record.recording import Recording


def _step(recording: Recording, model: nn.Module, forward: Callable[[], torch.Tensor], micro_batches: int = 1) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with recording.start(model=model, every=1):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            forward().sum().backward()
        optimizer.step()


def _activations(recording: Recording, **columns: Any) -> list[tuple[str, str, int]]:
    return [(r.module, r.slot, r.call) for r in recording.tensors("activation", **columns)]


def test_leaf_modules_in_order_and_containers_not_again(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    _step(recording, model, lambda: model(torch.ones(1, 2)))
    assert _activations(recording) == [("", "in", 0), ("0", "out", 0), ("1.0", "out", 0), ("1.1", "out", 0)]
    gradients = [(r.module, r.slot) for r in recording.tensors("grad_output")]
    assert gradients == [("1.1", "out"), ("1.0", "out"), ("0", "out")]


def test_an_in_place_module_is_seen_before_and_after(recording: Recording) -> None:
    linear = nn.Linear(1, 2, bias=False)
    model = nn.Sequential(linear, nn.ReLU(inplace=True))
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[2.0], [-2.0]]))
    _step(recording, model, lambda: model(torch.ones(1, 1)))
    assert recording.tensor("activation", module="0").zeros == 0
    assert recording.tensor("activation", module="1").zeros == 1


def test_outputs_of_every_shape(recording: Recording) -> None:
    model = models.ManyOutputs()
    _step(recording, model, lambda: model(torch.ones(2, models.FEATURES)))
    rows = _activations(recording, module="many")
    # A dataclass holds logits and the linear layer's output, which is recorded there already; so does a dict.
    assert rows == [("many", "out", 0), ("many", "out", 1), ("many", "out", 2)]
    assert [call for _, _, call in _activations(recording, module="many.linear")] == [0, 1, 2, 3]


class _Two(nn.Module):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, Any]:
        return {"a": x + 1, "b": [y * 2, (x * y,)], "n": None, "i": torch.arange(2)}


def test_slots_of_several_inputs_and_outputs(recording: Recording) -> None:
    model = _Two()
    with recording.start(model=model, every=1) as recorder:
        model(torch.ones(2), y=torch.full((2,), 3.0))
        recorder.step()
    rows = [(r.slot, r.absmax) for r in recording.tensors("activation")]
    assert rows == [("in", 1.0), ("in.1", 3.0), ("out", 2.0), ("out.1", 6.0), ("out.2", 3.0)]


def test_inputs_finite_tells_who_made_the_first_infinity(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(2.0**100)
    _step(recording, model, lambda: model(torch.ones(1, 1)))
    rows = {r.module: (r.posinf, r.inputs_finite) for r in recording.tensors("activation", slot="out")}
    assert rows == {"0": (0, True), "1": (1, True), "2": (1, False)}


def test_a_weight_that_is_not_finite_counts_as_an_input(recording: Recording) -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(math.nan)
    _step(recording, model, lambda: model(torch.ones(1, 1)))
    assert recording.tensor("activation", slot="out").inputs_finite is False


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_as_each_module_sees_it(recording: Recording, dtype: torch.dtype) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.full = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=dtype):
                x = self.narrow(x)
                with torch.autocast("cpu", enabled=False):
                    return torch.as_tensor(self.full(x.float()))

    model = Net()
    _step(recording, model, lambda: model(torch.ones(1, 2)))
    name = str(dtype).removeprefix("torch.")
    rows = {r.module: (r.autocast, r.dtype) for r in recording.tensors("activation", slot="out")}
    assert rows == {"narrow": (name, name), "full": (None, "float32")}
    assert {r.module: r.autocast for r in recording.tensors("grad_output", slot="out")} == {
        "narrow": name,
        "full": None,
    }


def test_micro_batches_are_told_apart(recording: Recording) -> None:
    model = nn.Linear(2, 1)
    _step(recording, model, lambda: model(torch.ones(1, 2)), micro_batches=3)
    for role in ("activation", "grad_output"):
        assert [(r.micro_batch, r.call) for r in recording.tensors(role, slot="out")] == [(0, 0), (1, 1), (2, 2)]
    assert [r.micro_batch for r in recording.tensors("weight_grad")] == [3, 3]
    assert recording.run.steps[0].micro_batches == 3


def test_a_module_called_a_thousand_times_is_recorded_eight_times(recording: Recording) -> None:
    model = nn.Linear(1, 1)

    def forward() -> torch.Tensor:
        x = torch.ones(1, 1)
        for _ in range(20):
            x = model(x)
        return x

    _step(recording, model, forward)
    assert len(recording.tensors("activation", slot="out")) == 8
    assert len(recording.tensors("grad_output", slot="out")) == 8


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_no_second_activation(recording: Recording, reentrant: bool) -> None:
    model = models.Checkpointed(reentrant=reentrant)
    _step(recording, model, lambda: model(torch.ones(2, models.FEATURES)), micro_batches=2)
    for module in ("first", "middle.0", "middle.1", "middle.2", "last"):
        rows = recording.tensors("activation", module=module, slot="out", grad_enabled=True)
        assert [(r.micro_batch, r.call) for r in rows] == [(0, 0), (1, 1)]
        assert len(recording.tensors("grad_output", module=module, slot="out")) == 2
    without = {r.module for r in recording.tensors("activation", grad_enabled=False)}
    assert without == ({"middle.0", "middle.1", "middle.2"} if reentrant else set())


def test_evaluation_in_between_counts_once(recording: Recording) -> None:
    model = nn.Linear(2, 1)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            for _ in range(5):
                model(torch.zeros(1, 2))
        with torch.inference_mode():
            model(torch.zeros(1, 2))
        return torch.as_tensor(model(torch.ones(1, 2)))

    _step(recording, model, forward)
    rows = [(r.grad_enabled, r.call) for r in recording.tensors("activation", slot="out")]
    assert rows == [(False, 0), (True, 0)]
    assert len(recording.tensors("grad_output")) == 1


def test_a_frozen_network_has_activations_and_no_gradients(recording: Recording) -> None:
    frozen, head = nn.Linear(2, 2).requires_grad_(requires_grad=False), nn.Linear(2, 1)
    model = nn.Sequential(frozen, head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert {r.module for r in recording.tensors("activation", slot="out")} == {"0", "1"}
    assert {r.module for r in recording.tensors("grad_output")} == {"1"}
    assert {r.module for r in recording.tensors("weight")} == {"0", "1"}
    assert {r.module for r in recording.tensors("weight_grad")} == {"1"}
    described = {m.module: (m.parameters, m.trainable, m.optimizer) for m in recording.run.modules if m.leaf}
    assert described == {"0": (6, 0, None), "1": (3, 3, "optimizer0")}


def test_modules_are_described_once(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(2, 2).bfloat16(), nn.Dropout(0.5), nn.LazyLinear(3)).train()
    model[1].eval()

    def forward() -> torch.Tensor:
        return torch.as_tensor(model[2](model[1](model[0](torch.ones(1, 2).bfloat16())).float()))

    with recording.start(model=model, every=1) as recorder:
        forward()
        recorder.step()
        forward()
        recorder.step()
    rows = {m.module: m for m in recording.run.modules}
    assert len(recording.run.modules) == 3
    assert {n: (m.type, m.leaf, m.parameters, m.training) for n, m in rows.items()} == {
        "0": ("Linear", True, 6, True), "1": ("Dropout", True, 0, False), "2": ("Linear", True, 9, True),
    }  # fmt: skip
    assert [rows[n].dtypes for n in "012"] == [["bfloat16"], [], ["float32"]]


def test_a_graph_that_outlives_its_step_records_nothing_more(recording: Recording) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording.start(model=model, every=1):
        kept = model(torch.ones(1, 1)).sum()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        kept.backward()
        optimizer.step()
    assert [r.step for r in recording.tensors("grad_output")] == [0]


def test_an_output_can_be_saved_without_a_warning(recording: Recording, tmp_path: Any) -> None:
    model = nn.Linear(1, 1)
    with recording.start(model=model, every=1) as recorder:
        torch.save(model(torch.ones(1, 1)), tmp_path / "out.pt")
        recorder.step()


def test_an_error_in_a_forward_has_no_frame_of_ours(recorder: Recorder) -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(3, 7)

    for _ in range(5):  # where operations are watched, the frames of a mode lie in between and can't be hidden
        recorder.step()
    with pytest.raises(RuntimeError) as raised:
        nn.Sequential(Failing())(torch.ones(1, 2))
    assert not [e for e in raised.traceback if "ampdoctor/record" in str(e.path)]


def test_copies_that_data_parallelism_makes_are_let_pass(recording: Recording) -> None:
    model = nn.Linear(2, 2)
    with recording.start(model=model, every=1) as recorder:
        # Torch leaves the parameters of a copy to its broadcast.
        copy = model._replicate_for_data_parallel()
        copy.weight, copy.bias = model.weight.detach(), model.bias.detach()
        copy(torch.ones(1, 2))
        model(torch.ones(1, 2))
        recorder.step()
    assert {r.module for r in recording.tensors()} == {""}
    assert len(recording.tensors("activation", slot="out")) == 1


def test_a_model_on_the_meta_device_is_let_pass(recording: Recording) -> None:
    model = nn.Linear(2, 2)
    with recording.start(every=1) as recorder:
        with torch.device("meta"):
            nn.Linear(2, 2)(torch.ones(1, 2))
        model(torch.ones(1, 2))
        recorder.step()
    assert len(recording.tensors("activation", slot="out")) == 1


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_trace_holds_nothing_of_ours(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    example = torch.ones(1, 2)
    with recording.start(every=1) as recorder:
        traced = torch.jit.trace(model, example)
        assert torch.equal(traced(example), model(example))
        recorder.step()
    without = torch.jit.trace(model, example)
    kinds = [[node.kind() for node in t.inlined_graph.nodes()] for t in (traced, without)]
    assert kinds[0] == kinds[1]
