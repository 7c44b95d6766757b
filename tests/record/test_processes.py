"""Processes that are killed, forked, spawned or started beside the training."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.environment import world_size
from ampdoctor.record.launch import finish
from ampdoctor.record.run_folder import RunFolder
from ampdoctor.trace.run import open_run
from tests.record.launched import SCRIPTS, TIMEOUT_S, Launched, environment_of_a_child, python
from tests.record.training import Training

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.recording import Recording

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Starts scripts."""
    return Launched(tmp_path / "run", monkeypatch)


@needs_fork
def test_killed_at_any_moment_every_complete_batch_is_read_back(tmp_path: Path) -> None:
    count = 16
    command = [python(), str(SCRIPTS / "killed.py"), str(tmp_path), str(count)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, env=environment_of_a_child())
    lengths = []
    for number in range(count):
        folder = tmp_path / str(number)
        finish(folder, -9)
        try:
            run = open_run(folder)
        except AmpDoctorError:
            lengths.append(0)
            continue
        steps = [row.step for row in run.steps]
        assert steps == list(range(len(steps)))
        assert run.cut
        assert (run.info.status, run.info.exit_code) == ("crashed", -9)
        # Tables are flushed one after another: what came before the last step is whole.
        whole = {row.step for row in run.tensors("update")}
        assert set(steps[:-1]) <= whole
        lengths.append(len(steps))
    assert lengths[0] == 0
    assert max(lengths) > 2


@pytest.mark.slow
def test_workers_and_other_children_record_nothing(launched: Launched) -> None:
    ended = launched.ended(launched.record(str(SCRIPTS / "workers.py")))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("a child\n4 0 ")
    run = launched.run
    assert len(run.steps) == 4
    assert run.info.status == "complete"
    assert {row.step for row in run.tensors()} == {0, 1, 2, 3}


@pytest.mark.slow
def test_of_two_trainings_the_first_is_recorded(launched: Launched) -> None:
    ended = launched.ended(launched.record(str(SCRIPTS / "starts_two.py")))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == "1.0 [0, 0]"
    assert ended.out.count("step 2") == 2
    run = launched.run
    assert [row.step for row in run.steps] == [0, 1, 2]
    assert run.info.command[-1] == "normally"


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_leaves_the_run_alone(recording: Recording) -> None:
    with recording.start(every=1):
        Training().run(2)
        child = os.fork()
        if child == 0:
            try:
                Training().run(3)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        Training().run(2)
    assert [row.step for row in recording.run.steps] == [0, 1, 2, 3]
    assert recording.run.info.status == "complete"
    assert recording.run.notices == ()


def test_a_folder_has_one_owner_for_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = []
    for rank in ("0", "1", "0", "1", ""):
        monkeypatch.setenv("RANK", rank)
        owners.append(RunFolder(tmp_path, {}).open())
    assert owners == [True, True, False, False, False]


def test_a_process_group_knows_the_rank_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    folder = RunFolder(tmp_path, {})
    for name, answer in (("is_initialized", True), ("get_rank", 3), ("get_world_size", 4)):
        monkeypatch.setattr(torch.distributed, name, lambda answer=answer: answer)
    assert folder.open()
    folder.close()
    assert (folder.rank, world_size()) == (3, 4)
