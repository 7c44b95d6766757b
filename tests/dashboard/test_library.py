"""What is opened is in the folder, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.library import ITSELF, KEPT_OPEN, Kind, Library
from tests.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two runs, one of them a level deeper, and with what is none; beside it a secret run."""
    write_run(tmp_path / "secret")
    root = tmp_path / "root"
    write_run(root / "one")
    write_run(root / "sweep" / "two")
    (root / "notes").mkdir()
    (root / "notes" / "todo.txt").write_text("buy milk")
    (root / "begun").mkdir()
    (root / "begun" / "run.json").touch()
    write_run(root / "broken")
    (root / "broken" / "run.json").write_text("{")
    (root / "way-out").symlink_to(tmp_path / "secret")
    return root


def test_everything_is_listed_as_what_it_is(root: Path) -> None:
    found = {entry.id: entry.kind for entry in Library(root).entries()}
    assert found == {
        "one": Kind.RUN,
        "sweep/two": Kind.RUN,
        "notes": Kind.FOREIGN,
        "begun": Kind.EMPTY,
        "broken": Kind.BROKEN,
    }


def test_what_is_no_run_says_why(root: Path) -> None:
    entries = Library(root).entries()
    assert all(entry.problem for entry in entries if entry.kind is not Kind.RUN)
    assert all(entry.info for entry in entries if entry.kind is Kind.RUN)


@pytest.mark.parametrize("run_id", ["one", "sweep/two", "sweep/../one"])
def test_runs_in_the_folder_are_opened(root: Path, run_id: str) -> None:
    assert len(Library(root).open(run_id).steps) == 3


@pytest.mark.parametrize(
    "run_id",
    ["../secret", "way-out", "one/../../secret", "/etc", "", "none", "a\0", "a" * 5000, "notes/todo.txt", "\\..\\one"],
)  # fmt: skip
def test_nothing_else_is(root: Path, run_id: str) -> None:
    with pytest.raises(AmpDoctorError) as caught:
        Library(root).open(run_id)
    assert caught.value.hint


def test_a_link_outside_by_its_whole_path_is_not_opened(root: Path) -> None:
    with pytest.raises(AmpDoctorError):
        Library(root).open(str(root.parent / "secret"))


def test_the_folder_may_be_a_run(root: Path) -> None:
    library = Library(root / "one")
    assert library.is_run
    assert [entry.id for entry in library.entries()] == [ITSELF]
    assert len(library.open(ITSELF).steps) == 3


def test_an_empty_folder_has_no_entries(tmp_path: Path) -> None:
    assert Library(tmp_path).entries() == []


def test_few_runs_are_kept_open(root: Path) -> None:
    for n in range(KEPT_OPEN + 2):
        write_run(root / f"more{n}")
    library = Library(root)
    opened = [library.open(f"more{n}") for n in range(KEPT_OPEN + 2)]
    assert library.open(f"more{KEPT_OPEN + 1}") is opened[-1]
    assert library.open("more0") is not opened[0]
