"""A script under the recorder is a script under python: it can't tell the difference."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.launch import RECORDING_VARIABLE, Recording, finish, start
from ampdoctor.trace.info import RunInfo, read_info, write_info
from tests.record.launched import SCRIPTS, Launched

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

ENDING = str(SCRIPTS / "ending.py")


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Starts scripts in a working directory of their own."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "beside.txt").write_text("read from the working directory", encoding="utf-8")
    monkeypatch.chdir(work)
    return Launched(tmp_path / "run", monkeypatch)


def test_a_script_sees_what_it_sees_under_python(launched: Launched, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("FROM_THE_USER = 'yes'\n", encoding="utf-8")
    launched._monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    plain, recorded = launched.both(str(SCRIPTS / "identity.py"), "--out", "x y", "-m", "")
    assert recorded == plain
    assert plain.code == 0, plain.err
    told = json.loads(plain.out)
    assert told["sitecustomize"] == "yes"
    assert told["argv"][1:] == ["--out", "x y", "-m", ""]


def test_a_module_sees_what_it_sees_under_python(launched: Launched) -> None:
    package = launched.folder.parent / "work" / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text((SCRIPTS / "identity.py").read_text(encoding="utf-8"), encoding="utf-8")
    plain, recorded = launched.both("-m", "package.train", "1")
    assert recorded == plain
    assert json.loads(plain.out)["spec"] == "package.train"


@pytest.mark.parametrize(
    ("how", "code", "status", "exception"),
    [
        ("normally", 0, "complete", None),
        ("exit 3", 3, "crashed", None),
        ("chained", 1, "crashed", "ValueError: chained"),
        ("in step", 1, "crashed", "TypeError: "),
        ("in unscale", 1, "crashed", "RuntimeError: unscale_() has already been called"),
        ("own hook", 1, "crashed", None),
        ("os._exit", 4, "crashed", None),
    ],
)
def test_an_end_of_every_kind(launched: Launched, how: str, code: int, status: str, exception: str | None) -> None:
    plain, recorded = launched.both(ENDING, how)
    assert plain.code == code
    assert recorded == plain
    info = launched.run.info
    assert (info.status, info.exit_code) == (status, code)
    assert str(info.exception).startswith(str(exception))
    assert [row.step for row in launched.run.steps][:3] == [0, 1, 2]
    assert not launched.run.cut or how == "os._exit"


def test_ctrl_c(launched: Launched) -> None:
    process = launched.record(ENDING, "wait")
    out = launched._file("out")
    deadline = time.monotonic() + 60
    while "step 2" not in out.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    ended = launched.ended(process)
    assert ended.code == -signal.SIGINT
    assert ended.err.rstrip().endswith("KeyboardInterrupt")
    assert "ampdoctor" not in ended.err
    info = launched.run.info
    assert (info.status, info.exception, info.exit_code) == ("crashed", "KeyboardInterrupt", -2)
    assert not launched.run.cut
    assert len(launched.run.steps) == 3


def test_a_script_that_never_imports_torch(launched: Launched) -> None:
    plain, recorded = launched.both("-c", "import sys; print(sys.argv, 'torch' in sys.modules, sys.excepthook)")
    assert recorded == plain
    assert list(launched.folder.iterdir()) == []


def test_a_script_that_imports_torch_and_does_not_train(launched: Launched) -> None:
    ended = launched.ended(launched.record("-c", "import torch; print(torch.ones(1))"))
    assert (ended.code, ended.err) == (0, "")
    assert list(launched.folder.iterdir()) == []


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(AmpDoctorError, match="cannot start"):
        start([str(tmp_path / "no-python"), "x.py"], Recording(tmp_path))


def test_settings_survive_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recording = Recording(tmp_path / "a 'run' é", every=3, budget=0.5, strict=True)
    monkeypatch.setenv(RECORDING_VARIABLE, recording.to_environment())
    assert Recording.from_environment() == recording
    monkeypatch.setenv(RECORDING_VARIABLE, "")
    assert Recording.from_environment() is None
    monkeypatch.delenv(RECORDING_VARIABLE)
    assert Recording.from_environment() is None


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        ("running", 0, "complete"), ("running", -9, "crashed"), ("running", 1, "crashed"), ("complete", 0, "complete"),
        ("complete", 3, "crashed"), ("crashed", 1, "crashed"), ("degraded", 0, "degraded"), ("degraded", 1, "degraded"),
    ],
)  # fmt: skip
def test_the_end_is_stamped_into_the_run(tmp_path: Path, before: str, code: int, after: str) -> None:
    write_info(tmp_path, RunInfo(status=before, degraded="why" if before == "degraded" else None))
    finish(tmp_path, code)
    info = read_info(tmp_path)
    assert (info.status, info.exit_code) == (after, code)
    assert info.degraded == ("why" if before == "degraded" else None)


def test_there_may_be_nothing_to_stamp(tmp_path: Path) -> None:
    finish(tmp_path, 1)
    finish(tmp_path / "missing", 1)
    assert list(tmp_path.iterdir()) == []
