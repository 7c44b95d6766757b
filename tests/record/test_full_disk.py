"""A disk that fills up ends the recording, with every complete batch before it kept."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.record.recorder import Recorder
from ampdoctor.trace.info import read_info
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import prepare_folder, table_path
from tests.record.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.record.recording import Recording

DEV_FULL = Path("/dev/full")
STEPS = 8


@pytest.mark.skipif(not DEV_FULL.exists(), reason="needs /dev/full, whose writes fail as on a full disk")
@pytest.mark.parametrize("table", ["tensors", "calls", "steps"])
def test_a_table_that_cannot_be_written(recording: Recording, table: str, caplog: pytest.LogCaptureFixture) -> None:
    alone = Training().run(STEPS)
    recorder = recording.start(every=1, strict=False)
    table_path(recording.folder, table).symlink_to(DEV_FULL)
    with recorder:
        outcome = Training().run(STEPS)
    assert outcome.differences(alone) == []
    table_path(recording.folder, table).unlink()
    assert recording.run.info.status == "degraded"
    assert "No space left on device" in str(recording.run.info.degraded)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system takes root and CAP_SYS_ADMIN")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _fill(place: Path) -> None:
    descriptor = os.open(place / "filler", os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(descriptor, bytes(4096)):
            pass
    os.close(descriptor)


@pytest.mark.usefixtures("written_at_once")
def test_a_disk_fills_up(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    alone = Training().run(STEPS)
    folder = small_disk / "run"
    prepare_folder(folder)
    with Recorder(folder, every=1, strict=False):
        outcome = Training().run(STEPS)
    assert outcome.differences(alone) == []
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "No space left on device" in caplog.text
    run = open_run(folder)
    assert 0 < len(run.steps) < STEPS
    assert [row.step for row in run.steps] == list(range(len(run.steps)))
    assert run.notices


def test_a_disk_that_is_full_from_the_start(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    alone = Training().run(STEPS)
    folder = small_disk / "run"
    prepare_folder(folder)
    _fill(small_disk)
    with Recorder(folder, every=1, strict=False):
        outcome = Training().run(STEPS)
    assert outcome.differences(alone) == []
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    # Of what cannot be written, nothing is left behind.
    assert [p.name for p in folder.iterdir()] == ["run.json"]


def test_run_json_is_kept_when_it_cannot_be_rewritten(small_disk: Path) -> None:
    folder = small_disk / "run"
    prepare_folder(folder)
    recorder = Recorder(folder, every=1, strict=False)
    recorder.start()
    Training().run(1)
    before = read_info(folder)
    _fill(small_disk)
    Training().run(1)
    recorder.stop()
    assert read_info(folder) == before
