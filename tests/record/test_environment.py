"""What run.json says of the machine and the code."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.record.environment import _git_commit, describe_run
from tests.record.training import Training

if TYPE_CHECKING:
    from tests.record.recording import Recording


def test_a_run_tells_where_and_with_what(recording: Recording) -> None:
    with recording.start(every=7, budget=0.5):
        Training().run(1)
    info = recording.run.info
    assert (info.pid, info.host, info.cwd) == (os.getpid(), socket.gethostname(), str(Path.cwd()))
    assert info.command == tuple(sys.orig_argv)
    assert info.versions["torch"] == torch.__version__
    assert info.recording == {"every": 7, "budget": 0.5, "sample_above": None}
    assert info.device.startswith(("cpu: ", "cuda: "))
    assert info.precision["float32_matmul_precision"] == torch.get_float32_matmul_precision()
    assert info.ended is not None
    assert info.started <= info.ended


@pytest.mark.parametrize(("value", "size"), [("4", 4), ("", 1), (None, 1)])
def test_the_number_of_processes(value: str | None, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if value is not None:
        monkeypatch.setenv("WORLD_SIZE", value)
    assert describe_run({}).world_size == size


@pytest.fixture
def repository_with_a_commit(tmp_path: Path) -> tuple[Path, str]:
    """A repository and its commit."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    work = tmp_path / "work"
    work.mkdir()
    _git(work, "init", "--quiet")
    _git(work, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--allow-empty", "-m", "m")
    return work, _git(work, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, env=clean)
    return done.stdout.strip()


def test_the_commit_is_read_from_the_files(repository_with_a_commit: tuple[Path, str], tmp_path: Path) -> None:
    work, commit = repository_with_a_commit
    (work / "below").mkdir()
    assert _git_commit(work) == _git_commit(work / "below") == commit
    _git(work, "pack-refs", "--all")
    assert _git_commit(work) == commit
    _git(work, "worktree", "add", "--quiet", str(tmp_path / "other"))
    assert _git_commit(tmp_path / "other") == commit
    _git(work, "checkout", "--quiet", "--detach")
    assert _git_commit(work) == commit


def test_a_repository_without_a_commit_or_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert _git_commit(tmp_path) is None
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    assert _git_commit(tmp_path) is None
