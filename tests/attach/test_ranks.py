"""The ranks of a distributed training are found from any one of them, and recorded into one run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.attach.process import process
from ampdoctor.attach.ranks import children_of, ranks_of
from ampdoctor.errors import AmpDoctorError
from ampdoctor.trace.run import open_run
from ampdoctor.trace.run import ranks_of as recorded_ranks
from tests.attach.attaching import wait_until
from tests.e2e.command import AMPDOCTOR, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parent / "scripts" / "ranks.py"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A launcher and the PIDs of its two ranks, which wait after their first steps."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = tmp_path / "stdout"
    with out.open("w") as stream:
        launcher = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(port)], cwd=tmp_path, stdout=stream, text=True,
            env=environment(OMP_NUM_THREADS="1"), start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: out.read_text().count("waiting for go") == 2, launcher)
        yield launcher, [int(pid) for pid in out.read_text().splitlines()[0].split()]
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(launcher.pid)], check=False)
        launcher.wait()


def test_the_group_is_found(ranks: tuple[subprocess.Popen[str], list[int]]) -> None:
    launcher, pids = ranks
    assert [p.pid for p in ranks_of(process(pids[1]))] == pids
    assert [p.pid for p in children_of(launcher.pid)] == pids
    assert [p.pid for p in ranks_of(process(launcher.pid))] == pids


def test_a_process_without_ranks_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment()) as child:
        try:
            with pytest.raises(AmpDoctorError, match="is no rank"):
                ranks_of(process(child.pid))
        finally:
            child.kill()


@pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb")
@pytest.mark.parametrize(("options", "expected"), [(["--all-ranks"], (0, 1)), ([], (1,))])
def test_they_are_recorded(
    ranks: tuple[subprocess.Popen[str], list[int]], options: list[str], expected: tuple[int, ...], tmp_path: Path
) -> None:
    launcher, pids = ranks
    said = tmp_path / "said"
    with said.open("w") as stream:
        command = subprocess.Popen(
            [*AMPDOCTOR, "attach", str(pids[1]), "--steps", "3", "--out", str(tmp_path / "run"), *options],
            stderr=stream, env=environment(),
        )  # fmt: skip
    wait_until(lambda: "attached to" in said.read_text(), command)
    (tmp_path / "go").touch()
    assert command.wait(60.0) == 0, said.read_text()
    (tmp_path / "end").touch()
    assert launcher.wait(60.0) == 0
    assert recorded_ranks(tmp_path / "run") == expected
    assert [s.step for s in open_run(tmp_path / "run").steps] == [0, 1, 2]
