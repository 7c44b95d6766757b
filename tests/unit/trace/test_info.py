"""run.json: written in one step, read with suspicion."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.errors import AmpDoctorError, RunNotFoundError, SchemaVersionError, TraceCorruptError
from ampdoctor.trace.info import RunInfo, read_info, update_info, write_info
from ampdoctor.trace.schema import OLDEST_READABLE, VERSION

if TYPE_CHECKING:
    from pathlib import Path

FULL = RunInfo(
    status="crashed", started=1.5, ended=2.5, command=("python", "train.py"), cwd="/somewhere", pid=7, host="box",
    exit_code=-9, exception="ValueError: é\udc80", degraded="OSError: full", git_commit="abc", world_size=2,
    device="cpu", versions={"torch": "2"}, precision={"tf32": None}, recording={"every": 5},
)  # fmt: skip


@pytest.mark.parametrize("info", [RunInfo(), FULL])
def test_it_comes_back_as_it_was(tmp_path: Path, info: RunInfo) -> None:
    write_info(tmp_path, info)
    assert read_info(tmp_path) == info
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_an_update_changes_what_it_names(tmp_path: Path) -> None:
    write_info(tmp_path, FULL)
    assert update_info(tmp_path, exit_code=0) == read_info(tmp_path)
    assert read_info(tmp_path).exit_code == 0
    assert read_info(tmp_path).command == FULL.command


def test_fields_of_a_later_release_are_left_out(tmp_path: Path) -> None:
    _write(tmp_path, {"schema_version": VERSION, "mood": "good", "pid": 3})
    assert read_info(tmp_path) == RunInfo(pid=3)


def _write(folder: Path, value: Any) -> None:
    (folder / "run.json").write_text(json.dumps(value), encoding="utf-8")


def test_a_folder_that_is_missing_a_file_or_foreign(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, message in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "file", "is a file"),
        (tmp_path, r"has no run\.json"),
    ):
        with pytest.raises(RunNotFoundError, match=message) as caught:
            read_info(place)
        assert caught.value.hint
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(("version", "hint"), [(VERSION + 1, "upgrade"), (OLDEST_READABLE - 1, "record the run again")])
def test_a_version_that_cannot_be_read(tmp_path: Path, version: int, hint: str) -> None:
    _write(tmp_path, {"schema_version": version})
    with pytest.raises(SchemaVersionError, match=f"schema version {version}") as caught:
        read_info(tmp_path)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "3", '"text"', "{}", '{"schema_version": null}', '{"schema_version": "one"}',
        '{"schema_version": [1]}', '{"schema_version": 1e400}', "[" * 100_000, "\ufeff{}",
        *(
            json.dumps({"schema_version": VERSION, name: value})
            for name, value in [
                ("status", 5), ("status", "sleeping"), ("status", None), ("pid", "7"), ("pid", 1.5), ("started", None),
                ("started", "now"), ("ended", "later"), ("exit_code", "0"), ("exception", 3), ("command", None),
                ("command", 3), ("host", None), ("world_size", None), ("versions", None), ("versions", []),
                ("precision", "x"),
            ]
        ),
    ],
)  # fmt: skip
def test_what_is_not_as_it_must_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(TraceCorruptError, match=r"run\.json is not readable") as caught:
        read_info(tmp_path)
    assert caught.value.exit_code == 2
    assert len(caught.value.message) < 500


def test_a_folder_that_nobody_may_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "is_dir", refuse)
    with pytest.raises(RunNotFoundError, match="not readable: Permission denied"):
        read_info(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceCorruptError):
        read_info(tmp_path)


def test_damaged_or_cut_anywhere_it_reads_or_says_so(tmp_path: Path) -> None:
    write_info(tmp_path, FULL)
    path = tmp_path / "run.json"
    data = path.read_bytes()

    @settings(max_examples=300, deadline=None)
    @given(place=st.integers(0, len(data) - 1), mask=st.integers(1, 255), keep=st.integers(0, len(data)))
    def check(place: int, mask: int, keep: int) -> None:
        damaged = bytearray(data)
        damaged[place] ^= mask
        path.write_bytes(damaged[:keep] if mask % 2 else damaged)
        try:
            info = read_info(tmp_path)
        except AmpDoctorError:
            return
        write_info(tmp_path, info)
        assert read_info(tmp_path) == info

    check()


@pytest.mark.parametrize("name", ["started", "ended"])
@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_times_that_are_none_are_refused(tmp_path: Path, name: str, time: float) -> None:
    _write(tmp_path, {"schema_version": VERSION, name: time})
    with pytest.raises(TraceCorruptError):
        read_info(tmp_path)
