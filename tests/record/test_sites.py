"""Names of modules and parameters, given or found."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record import sites as sites_module
from ampdoctor.record.live_objects import live_instances, live_of_both
from ampdoctor.record.sites import Sites, variable_name
from tests.record import models

if TYPE_CHECKING:
    import pytest

    from tests.record.recording import Recording


def _sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for m in modules for p in m.parameters()], lr=0.1)


def test_one_model_needs_no_prefix() -> None:
    last = nn.Linear(2, 1)
    model = nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.ReLU(), last))
    optimizer = _sgd(model)
    sites = Sites()
    assert sites.path(last) == "1.1"
    assert sites.path(model) == ""
    assert sites.path(model[0]) == "0"
    assert sites.parameter(last.bias) == ("1.1", "bias")
    assert len(optimizer.param_groups) == 1


def test_a_teacher_goes_by_its_variable() -> None:
    student, teacher = nn.Sequential(nn.Linear(1, 1)), nn.Sequential(nn.Linear(1, 1))
    optimizer = _sgd(student)
    sites = Sites()
    assert [sites.path(m) for m in (student[0], teacher[0], teacher)] == ["0", "teacher.0", "teacher"]
    del optimizer


def test_two_that_are_trained_go_by_their_variables() -> None:
    generator, critic = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizers = [_sgd(generator), _sgd(critic)]
    sites = Sites()
    assert {sites.path(generator), sites.path(critic)} == {"generator", "critic"}
    assert sites.parameter(critic.weight) == ("critic", "weight")
    del optimizers


class _Trainer:
    """Holds its model as an attribute, where no variable names it."""

    def __init__(self) -> None:
        self.net, self.loss = nn.Sequential(nn.Linear(1, 1)), nn.MSELoss()
        self.optimizer = _sgd(self.net)


def test_a_model_without_a_variable() -> None:
    trainer = _Trainer()
    sites = Sites()
    assert sites.path(trainer.net[0]) == "0"
    assert sites.path(trainer.loss) == "mseloss"


def test_equal_names_get_numbers() -> None:
    losses = [nn.MSELoss(), nn.MSELoss(), nn.MSELoss()]
    sites = Sites()
    assert sorted(map(sites.path, losses)) == ["mseloss", "mseloss_2", "mseloss_3"]


def test_a_list_of_modules_that_is_never_called_itself() -> None:
    blocks = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))
    optimizer = _sgd(blocks)
    sites = Sites()
    assert [sites.path(b) for b in blocks] == ["0", "1"]
    del optimizer


def test_a_model_that_is_tried_before_it_has_an_optimizer() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    sites = Sites()
    assert sites.path(model[0]) == "0"
    optimizer = _sgd(model)
    teacher = nn.Sequential(nn.Linear(1, 1))
    assert sites.path(teacher[0]) == "teacher.0"
    del optimizer


def test_a_model_that_tries_a_part_of_itself_while_it_is_made(recording: Recording) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3, 5)
            self.head = nn.Linear(self.body(torch.zeros(1, 3)).shape[1], 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.head(self.body(x)))

    with recording.start(every=1):
        net = Net()
        optimizer = _sgd(net)
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert {r.module for r in recording.tensors("weight_grad")} == {"body", "head"}


def test_given_roots_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    model, teacher = nn.Sequential(nn.Linear(1, 1)), nn.Sequential(nn.Linear(1, 1))
    monkeypatch.setattr(sites_module, "live_of_both", lambda *_: 1 / 0)
    sites = Sites({"": model, "teacher": teacher})
    assert [sites.path(m) for m in (model, model[0], teacher, teacher[0])] == ["", "0", "teacher", "teacher.0"]
    assert sites.parameter(next(teacher.parameters())) == ("teacher.0", "weight")


def test_modules_made_later_are_found_and_searches_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[type] = []
    find = live_of_both

    def search(first: type, second: type) -> tuple[list[Any], list[Any]]:
        searches.append(first)
        return find(first, second)

    monkeypatch.setattr(sites_module, "live_of_both", search)
    sites = Sites()
    kept, names = [], []
    for _ in range(40):
        kept.append(nn.Tanh())
        names.append(sites.path(kept[-1]))
    assert names == ["tanh", *(f"tanh_{i}" for i in range(2, 41))]
    assert searches.count(nn.Module) == 8


def test_a_module_that_is_made_in_every_forward_keeps_its_name() -> None:
    sites = Sites()
    others = {id(module) for module in live_instances(nn.Module)}  # transformers makes some when it is imported
    assert {sites.path(nn.Softmax(dim=1)) for _ in range(20)} == {"softmax"}
    assert len([module for ref, _ in sites._roots if (module := ref()) is not None and id(module) not in others]) <= 1


def test_a_module_that_is_gone_gives_its_place_to_no_other() -> None:
    first = nn.Linear(1, 1)
    sites = Sites({"": first})
    assert sites.parameter(first.weight) == ("", "weight")
    del first
    gc.collect()
    fresh = [torch.zeros(1, requires_grad=True) for _ in range(50)]
    assert all(sites.parameter(t)[1] != "weight" for t in fresh)


def test_bare_parameters_go_by_their_variables() -> None:
    sites = Sites()
    alpha, beta = (torch.zeros(1, requires_grad=True) for _ in range(2))
    nameless = [torch.zeros(1), torch.zeros(1)]
    names = list(map(sites.parameter, [alpha, beta, alpha, *nameless]))
    assert names == [("", n) for n in ("alpha", "beta", "alpha", "parameter", "parameter_2")]


class DistributedDataParallel(nn.Module):
    """Holds the model as torch's own does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)


def test_wrappers_leave_no_trace_in_a_path() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    wrapped = DistributedDataParallel(model)
    sites = Sites({"": wrapped})
    assert [sites.path(m) for m in (wrapped, model, model[0])] == ["", "", "0"]
    assert sites.parameter(next(model.parameters())) == ("0", "weight")
    named = Sites({"student": wrapped})
    assert named.path(model[0]) == "student.0"
    held: Any = nn.ModuleDict({"_forward_module": wrapped, "module": nn.Linear(1, 1)})
    inside = Sites({"critic": held})  # as Fabric holds a model
    assert [inside.path(m) for m in (model[0], held["module"])] == ["critic.0", "critic.module"]


def test_a_module_that_is_called_module_keeps_its_name() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(1, 1)

    net = Net()
    assert Sites({"": net}).path(net.module) == "module"


def test_compiled_and_checkpointed_wrappers() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    compiled: Any = torch.compile(model, backend="eager")
    assert Sites({"": compiled}).path(model[1]) == "1"
    assert sites_module._unwrapped("0._checkpoint_wrapped_module.fc") == "0.fc"
    assert sites_module._unwrapped("_fsdp_wrapped_module.0") == "0"


def test_a_tied_weight_is_one_site(recording: Recording) -> None:
    model = models.Tied()
    optimizer = _sgd(model)
    with recording.start(model=model, every=1):
        model(torch.ones(1, models.FEATURES)).sum().backward()
        optimizer.step()
    for role in ("weight", "weight_grad", "update"):
        assert [(r.module, r.slot) for r in recording.tensors(role)] == [("first", "weight")]


def test_a_module_under_two_names_goes_by_the_first() -> None:
    shared = nn.Linear(1, 1)
    model = nn.ModuleDict({"a": shared, "b": shared})
    assert Sites({"": model}).path(shared) == "a"


def test_what_the_search_finds_does_not_matter_to_the_user(recording: Recording) -> None:
    """A lazy proxy that wakes up when it is asked for its class, a module that was never initialised."""

    class Proxy:
        awake = False

        def wake_up(self) -> Any:
            type(self).awake = True
            raise RuntimeError("woken up")

        __class__ = property(wake_up)

    kept = [Proxy(), nn.Linear.__new__(nn.Linear), copy.copy(nn.Linear(1, 1))]
    model = nn.Linear(1, 1)
    optimizer = _sgd(model)
    with recording.start(every=1):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert {r.module for r in recording.tensors("weight_grad")} == {""}
    assert not Proxy.awake
    del kept


def test_the_name_of_a_variable() -> None:
    wanted, _private, kept = object(), object(), [object()]
    found = [variable_name(wanted), variable_name(_private), variable_name(kept[0])]
    assert found == ["wanted", None, None]

    def inner(self: object) -> str | None:
        return variable_name(self)

    # Names that say nothing are passed over for that of the caller.
    assert inner(wanted) == "wanted"


def test_looking_for_names_keeps_no_variable_alive() -> None:
    def step() -> weakref.ref[torch.Tensor]:
        batch = torch.zeros(3)
        assert variable_name(batch) == "batch"
        alive = weakref.ref(batch)
        del batch
        gc.collect()
        assert alive() is None
        return alive

    step()


def test_the_locals_that_a_function_holds_stay_as_they_are() -> None:
    namespace: dict[str, Any] = {"variable_name": variable_name}
    source = """
def function():
    first = object()
    held = locals()
    second = object()
    variable_name(second)
    return held
"""
    exec(source, namespace)
    assert set(namespace["function"]()) == {"first"}
