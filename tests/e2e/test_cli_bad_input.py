"""Bad input to every command: one clear line, a hint, exit code 2, and nothing of the user's touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ampdoctor.trace.schema import VERSION
from tests.e2e.command import ampdoctor
from tests.recorded import write_run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def _missing(run: Path) -> None:
    pass


def _file(run: Path) -> None:
    run.write_text("no folder")


def _empty_folder(run: Path) -> None:
    run.mkdir()


def _foreign_folder(run: Path) -> None:
    run.mkdir()
    (run / "data.csv").write_text("1,2,3")


def _run_json(text: str) -> Callable[[Path], None]:
    def make(run: Path) -> None:
        (write_run(run) / "run.json").write_text(text)

    return make


def _table(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def make(run: Path) -> None:
        stream = write_run(run) / "steps-0.arrows"
        stream.write_bytes(change(stream.read_bytes()))

    return make


BAD_RUNS = {
    "missing": (_missing, "run does not exist"),
    "a file": (_file, "run is a file, not a run folder"),
    "an empty folder": (_empty_folder, "run is not a run"),
    "a foreign folder": (_foreign_folder, "run is not a run"),
    "empty run.json": (_run_json(""), "run.json is not readable"),
    "truncated run.json": (_run_json('{"schema_version": 1, "sta'), "run.json is not readable"),
    "run.json of something else": (_run_json('{"name": "web"}'), "run.json is not readable"),
    "run.json of the wrong types": (
        _run_json('{"schema_version": 1, "command": 5}'),
        "run.json is not readable",
    ),
    "run.json that is no object": (_run_json("[1, 2]"), "run.json is not readable"),
    "a newer version": (
        _run_json(json.dumps({"schema_version": VERSION + 1})),
        f"has schema version {VERSION + 1}",
    ),
    "a version before the first": (_run_json('{"schema_version": 0}'), "has schema version 0"),
    "a table of something else": (_table(lambda _: b"PK\x03\x04zip"), "is not an Arrow stream"),
    "a table of zeros": (_table(lambda data: bytes(len(data))), "is not an Arrow stream"),
}

CUT_TABLES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in its first bytes": lambda data: data[:3],
    "cut in its schema": lambda data: data[:200],
    "cut in a batch": lambda data: data[:-300],
}


def _assert_told(process: subprocess.CompletedProcess[str], message: str) -> None:
    assert process.returncode == 2, process.stderr
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    error, hint = process.stderr.splitlines()
    assert error.startswith("ampdoctor: error: ")
    assert message in error
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize("case", BAD_RUNS)
def test_diagnose_refuses(tmp_path: Path, case: str) -> None:
    make, message = BAD_RUNS[case]
    make(tmp_path / "run")
    _assert_told(ampdoctor("diagnose", "run", cwd=tmp_path), message)


@pytest.mark.parametrize("case", CUT_TABLES)
def test_a_cut_table_is_used_as_far_as_it_goes(tmp_path: Path, case: str) -> None:
    _table(CUT_TABLES[case])(tmp_path / "run")
    process = ampdoctor("diagnose", "run", "--format", "json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    assert json.loads(process.stdout)["examined"]["gaps"]


def test_a_table_without_its_end_mark_is_whole(tmp_path: Path) -> None:
    _table(lambda data: data[:-8])(tmp_path / "run")
    process = ampdoctor("diagnose", "run", "--format", "json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    examined = json.loads(process.stdout)["examined"]
    assert examined["steps"] == 3
    assert examined["gaps"] == []


@pytest.mark.parametrize("where", range(9, 100, 18))
def test_a_corrupted_table_is_never_a_traceback(tmp_path: Path, where: int) -> None:
    def flip(data: bytes) -> bytes:
        place = len(data) * where // 100
        return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]

    _table(flip)(tmp_path / "run")
    process = ampdoctor("diagnose", "run", cwd=tmp_path)
    assert "Traceback" not in process.stderr
    assert process.returncode in {0, 1, 2}, process.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnose", "run", "--format", "xml"], "unknown format 'xml'"),
        (["diagnose", "run", "--fail-on", "doom"], "--fail-on"),
        (["diagnose"], "Missing argument"),
        (["explain", "no-such-rule"], "no rule 'no-such-rule'"),
        (["formats", "--format", "xml"], "--format"),
        (["run", "absent.py"], "there is no script absent.py"),
        (["run", "."], "is a folder without __main__.py"),
        (["run", "-m", "absent_module"], "there is no module absent_module"),
        (["run", "--every", "0", "train.py"], "--every"),
        (["run", "--every", "x", "train.py"], "--every"),
        (["run", "--budget", "1.5", "train.py"], "--budget"),
        (["run", "--out", "full", "train.py"], "full is not empty"),
        (["run", "--out", "full", "--force", "train.py"], "full is not empty"),
        (["run", "--out", "train.py", "train.py"], "cannot write to train.py"),
        (["run", "--out", "train.py/below", "train.py"], "cannot write to train.py/below"),
        (["demo", "--steps", "0"], "--steps"),
    ],
)
def test_the_command_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    _assert_told(ampdoctor(*arguments, cwd=tmp_path), message)
    assert sorted(tmp_path.rglob("*")) == before, "nothing was started, written or removed"


def test_a_default_folder_that_cannot_be_made_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    (tmp_path / "ampdoctor-runs").write_text("a file in the way")
    _assert_told(
        ampdoctor("run", "train.py", cwd=tmp_path), "cannot write to ampdoctor-runs/train-"
    )
    assert not (tmp_path / "started").exists()


def test_force_replaces_a_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    write_run(tmp_path / "run")
    process = ampdoctor("run", "--out", "run", "train.py", cwd=tmp_path)
    _assert_told(process, "run is not empty")
    assert "--force" in process.stderr
    assert (tmp_path / "run" / "steps-0.arrows").exists()
    process = ampdoctor("run", "--out", "run", "--force", "train.py", cwd=tmp_path)
    assert process.returncode == 0
    assert process.stdout == "trained\n"
    assert not (tmp_path / "run" / "steps-0.arrows").exists()
