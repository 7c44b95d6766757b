"""One run holds all ranks, whoever starts them, and whether ampdoctor stands before the launcher or in each rank."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.trace.run import open_run
from tests.e2e.command import TIMEOUT_S, environment

SCRIPT = str(Path(__file__).parent / "scripts" / "alike.py")
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
AMPDOCTOR = ["-m", "ampdoctor", "run"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="gloo over the loopback interface needs Linux or macOS"),
]


def _free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def _ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    interface = "lo" if Path("/sys/class/net/lo").exists() else "lo0"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(GLOO_SOCKET_IFNAME=interface, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _torchrun() -> list[str]:
    return [*TORCHRUN, "--standalone"]


def test_ranks_that_a_program_spawns_by_itself(tmp_path: Path) -> None:
    plain = _ended(tmp_path, SCRIPT, "spawned", _free_port())
    ended = _ended(tmp_path, *AMPDOCTOR, "--out", "run", SCRIPT, "spawned", _free_port())
    assert (plain.returncode, ended.returncode) == (0, 0), ended.stderr
    assert sorted(ended.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    run = open_run(tmp_path / "run")
    assert (run.ranks, run.info.world_size) == ((0, 1), 2)


def test_the_command_in_each_rank(tmp_path: Path) -> None:
    ended = _ended(tmp_path, *_torchrun(), "-m", "ampdoctor", "run", SCRIPT, "launched")
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 6
    (folder,) = (tmp_path / "ampdoctor-runs").iterdir()
    assert open_run(folder).ranks == (0, 1)
    assert ended.stderr.count("recording to") == ended.stderr.count("healthy: ") == 1
    assert "2 ranks recorded and compared" in ended.stderr


def test_the_command_in_each_rank_replaces_nothing_unasked(tmp_path: Path) -> None:
    in_each = ["-m", "ampdoctor", "run", "--out", "run"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    ended = _ended(tmp_path, *_torchrun(), *in_each, SCRIPT, "launched")
    assert ended.returncode != 0
    assert "run is not empty" in ended.stderr  # by the first rank, which the launcher ends the others for
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_watch_in_each_rank(tmp_path: Path) -> None:
    ended = _ended(tmp_path, *_torchrun(), SCRIPT, "watched", "run")
    assert ended.returncode == 0, ended.stderr
    run = open_run(tmp_path / "run")
    assert run.ranks == (0, 1)
    assert all(run.of_rank(rank).steps for rank in run.ranks)
    assert ended.stderr.count("healthy: ") == 1


def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    ended = _ended(tmp_path, *AMPDOCTOR, "--out", "run", *_torchrun(), SCRIPT, "raises")
    assert ended.returncode == 1
    assert "rank 1 ended with ValueError: a row that is too long" in diagnose(open_run(tmp_path / "run")).verdict
