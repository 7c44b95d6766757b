"""A training whose GPUs are sampled beside it: what is in its folder, and that it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.record.telemetry.sampler import VARIABLE
from ampdoctor.trace.run import Run, open_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.telemetry.conftest import Stub

GPUS = {"STUB_GPUS": "GPU-aaaa|A100,GPU-bbbb|A100"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The run folder."""
    return tmp_path / "run"


def _trained(stub: Stub, folder: Path, *how: str, asked: str = "1", **environment: str) -> Run:
    stub.run("train.py", str(folder), *how, **{VARIABLE: asked, **GPUS, **environment})
    run = open_run(folder)
    assert run.info.status == "complete"
    assert len(run.steps) >= 10
    assert run.notices == ()
    return run


def test_looks_at_the_gpus_lie_beside_the_steps(stub: Stub, folder: Path) -> None:
    run = _trained(stub, folder, "until-known")
    assert run.info.gpu_telemetry == "sampled"
    assert {(r.device, r.uuid) for r in run.gpu} == {(0, "GPU-aaaa"), (1, "GPU-bbbb")}
    assert {r.step for r in run.gpu} <= set(range(len(run.steps) + 1))
    assert [r.time for r in run.gpu] == sorted(r.time for r in run.gpu)


def test_without_nvml_the_run_says_so_and_is_complete(stub: Stub, folder: Path) -> None:
    run = _trained(stub, folder, "until-known", STUB_FAIL="nvmlInitWithFlags=9")
    assert (run.info.gpu_telemetry or "").startswith("no NVML: ")
    assert run.gpu == []


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
def test_a_call_that_hangs_does_not_keep_the_training_from_ending(stub: Stub, folder: Path, function: str) -> None:
    run = _trained(stub, folder, STUB_HANG=function)
    assert run.info.gpu_telemetry == "no NVML: it had not answered by the end"


def test_it_can_be_turned_off_and_is_off_without_cuda(stub: Stub, folder: Path, tmp_path: Path) -> None:
    assert _trained(stub, folder, asked="0").info.gpu_telemetry is None
    run = _trained(stub, tmp_path / "unasked", asked="")
    assert run.info.gpu_telemetry is None
    assert run.gpu == []


def test_children_of_a_fork_sample_nothing_and_end(stub: Stub, folder: Path) -> None:
    run = _trained(stub, folder, "until-known", "fork")
    assert run.info.gpu_telemetry == "sampled"
    assert {r.uuid for r in run.gpu} == {"GPU-aaaa", "GPU-bbbb"}
