"""Models that can't be planned: what is said of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.layouts import LAYOUTS, layouts_named
from ampdoctor.record.planning.optimizers import OPTIMIZERS
from ampdoctor.record.planning.step import Settings, step_memory
from ampdoctor.record.planning.targets import Target, load_target
from tests.record.planning.models import IN, Classifier, classifier, planned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Looks(Classifier):
    """Its step depends on its loss."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = super().forward(x, y)
        return loss * 2 if loss.item() > 3 else loss


class Selects(Classifier):
    """The shape of a result depends on values."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) + x[x > 0].sum()


class Detached(Classifier):
    """What it returns has nothing to do with its weights."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y).detach()


SHARED = Classifier()


def with_batch(model: Any) -> Callable[[], Any]:
    return lambda: (model() if isinstance(model, type) else model, classifier()[1])


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (with_batch(Looks), r"forward pass .* aten\._local_scalar_dense.* \(test_bad_targets\.py:\d+\)"),
        (with_batch(Selects), r"aten\.nonzero"),
        (with_batch(Detached), "no tensor that depends on its weights"),
        (with_batch(dict), "returns dict, which is no torch.nn.Module"),
        (Classifier, "says nothing of its batches"),
        (lambda: None, "returns NoneType"),
        (lambda: (nn.ReLU(), torch.zeros), "no parameter to train"),
        (lambda: (Classifier(), lambda n: (torch.zeros(n, IN + 1), torch.zeros(n).long())), "forward pass .* fails"),
        (lambda: (Classifier(), lambda n: 1 / 0), "batch .* fails: ZeroDivisionError"),
        (lambda: 1 / 0, "building .* fails: ZeroDivisionError"),
        (lambda: (Classifier().to("cuda"), None), "building .* fails"),
    ],
)
def test_what_fails_is_named(factory: Callable[[], Any], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AmpDoctorError, match=said) as error:
        planned(factory, on_cuda=True)
    assert error.value.hint
    assert capfd.readouterr() == ("", "")


def test_a_module_can_be_planned_once() -> None:
    settings = Settings(Target("it", with_batch(SHARED)), OPTIMIZERS["sgd"], 1, False, False)
    step_memory(settings, LAYOUTS["fp32"], 1)
    with pytest.raises(AmpDoctorError, match="same module again"):
        step_memory(settings, LAYOUTS["fp32"], 1)


def test_what_a_factory_prints_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def factory() -> Any:
        sys.stdout.write("hello\n")
        return classifier()

    planned(factory)
    assert capsys.readouterr() == ("", "hello\n")


def test_checkpointing_needs_blocks() -> None:
    with pytest.raises(AmpDoctorError, match="finds no blocks"):
        planned(checkpoint=True)


def test_unknown_layouts_list_the_known_ones() -> None:
    for names in ("fp64", "", "fp32,fp8"):
        with pytest.raises(AmpDoctorError) as error:
            layouts_named(names)
        assert all(name in error.value.hint for name in LAYOUTS)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("model", "no model that can be planned"),
        ("model.py:", "no model that can be planned"),
        ("missing.py:model", "there is no file"),
        ("missing.module:model", "there is no module"),
        ("json:nothing", "has no function 'nothing'"),
        ("config.json", "cannot read"),
        (".", "cannot read"),
    ],
)
def test_targets_that_are_not_there(target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AmpDoctorError, match=said) as error:
        load_target(target)
    assert error.value.hint


def test_a_file_that_fails_to_import(tmp_path: Path) -> None:
    file = tmp_path / "broken_model.py"
    file.write_text("import nowhere_to_be_found\n", encoding="utf-8")
    with pytest.raises(AmpDoctorError, match=r"importing .* ModuleNotFoundError.*\(broken_model\.py:1\)"):
        load_target(f"{file}:model")


def test_a_sequence_goes_with_a_config() -> None:
    with pytest.raises(AmpDoctorError, match="--sequence"):
        load_target("json:loads", sequence=8)
