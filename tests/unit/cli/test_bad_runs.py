"""Folders that are no run, and runs that are damaged: one clear line, a hint, exit code 2."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from ampdoctor.trace.schema import VERSION
from tests.recorded import write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]


def _missing(run: Path) -> None:
    pass


def _file(run: Path) -> None:
    run.write_text("no folder")


def _empty_folder(run: Path) -> None:
    run.mkdir()


def _claimed_folder(run: Path) -> None:
    run.mkdir()
    for name in ("run.json", ".claim-1", ".run.json.4711"):
        (run / name).touch()


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
    "an empty folder": (_empty_folder, "nothing was recorded in run"),
    "a folder that was only claimed": (_claimed_folder, "nothing was recorded in run"),
    "a foreign folder": (_foreign_folder, "run is not a run"),
    "empty run.json": (_run_json(""), "run.json is not readable"),
    "truncated run.json": (_run_json('{"schema_version": 1, "sta'), "run.json is not readable"),
    "run.json of something else": (_run_json('{"name": "web"}'), "run.json is not readable"),
    "run.json of the wrong types": (_run_json('{"schema_version": 1, "command": 5}'), "run.json is not readable"),
    "run.json that is no object": (_run_json("[1, 2]"), "run.json is not readable"),
    "a newer version": (_run_json(json.dumps({"schema_version": VERSION + 1})), f"has schema version {VERSION + 1}"),
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


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("case", BAD_RUNS)
def test_diagnose_refuses(ampdoctor: Ampdoctor, tmp_path: Path, case: str, output: str) -> None:
    make, message = BAD_RUNS[case]
    make(tmp_path / "run")
    outcome = ampdoctor("diagnose", "run", "--format", output)
    assert (outcome.code, outcome.out) == (2, "")
    error, hint = outcome.err.splitlines()
    assert error.startswith("ampdoctor: error: ")
    assert message in error
    assert hint.startswith("  hint: ")


COMMANDS = {
    "check": ("check", "run"),
    "check against it": ("check", "good", "--baseline", "run", "--baseline-missing", "fail"),
    "baseline": ("baseline", "run", "-o", "b.json"),
    "compare": ("compare", "good", "run"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", BAD_RUNS)
def test_the_gate_refuses(ampdoctor: Ampdoctor, tmp_path: Path, case: str, command: str) -> None:
    make, message = BAD_RUNS[case]
    make(tmp_path / "run")
    write_run(tmp_path / "good")
    outcome = ampdoctor(*COMMANDS[command])
    assert (outcome.code, outcome.out) == (2, "")
    error, hint = outcome.err.splitlines()
    assert error.startswith("ampdoctor: error: ")
    assert message in error or command == "check against it"
    assert hint.startswith("  hint: ")
    assert not (tmp_path / "b.json").exists()


def test_a_folder_of_runs_names_the_newest(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    for age, name in enumerate(("d", "b", "c", "a")):
        run = write_run(tmp_path / "runs" / name)
        os.utime(run / "run.json", (1000 - age, 1000 - age))
    (tmp_path / "runs" / "e").mkdir()
    outcome = ampdoctor("diagnose", "runs")
    error, hint = outcome.err.splitlines()
    assert "runs is not a run" in error
    assert hint.endswith("give one of them. The newest: runs/d, runs/b, runs/c")


@pytest.mark.parametrize("case", CUT_TABLES)
def test_a_cut_table_is_used_as_far_as_it_goes(ampdoctor: Ampdoctor, tmp_path: Path, case: str) -> None:
    _table(CUT_TABLES[case])(tmp_path / "run")
    outcome = ampdoctor("diagnose", "run", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert json.loads(outcome.out)["examined"]["gaps"]


def test_a_table_without_its_end_mark_is_whole(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    _table(lambda data: data[:-8])(tmp_path / "run")
    outcome = ampdoctor("diagnose", "run", "--format", "json")
    assert outcome.code == 0, outcome.err
    examined = json.loads(outcome.out)["examined"]
    assert examined["steps"] == 3
    assert examined["gaps"] == []


@pytest.mark.parametrize("where", range(100))
def test_a_corrupted_table_is_never_a_traceback(ampdoctor: Ampdoctor, tmp_path: Path, where: int) -> None:
    def flip(data: bytes) -> bytes:
        place = len(data) * where // 100
        return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]

    _table(flip)(tmp_path / "run")
    outcome = ampdoctor("diagnose", "run")
    assert "Traceback" not in outcome.err
    assert outcome.code in {0, 1, 2}, outcome.err
