"""What `ampdoctor run` is asked to run: refused with a hint where it can't be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli.target import command_line, stem
from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("script", ["train.py", "./train.py", "application", "-"])
def test_what_python_would_run_is_run(script: str) -> None:
    expected = [sys.executable, script, "--help", "--", "x"]
    assert command_line(script, ["--help", "--", "x"], module=False) == expected


@pytest.mark.parametrize("module", ["package.train", "train", "json.tool"])
def test_modules_are_found_without_importing_them(module: str) -> None:
    path = list(sys.path)
    assert command_line(module, ["-x"], module=True) == [sys.executable, "-m", module, "-x"]
    assert sys.path == path


@pytest.mark.parametrize(
    ("script", "message", "hint"),
    [
        ("lrain.py", "there is no script lrain.py", "paths are taken from"),
        ("python", "there is no script python", "leave out `python`"),
        ("python3.11", "there is no script python3.11", "leave out `python`"),
        ("torchrun", "there is no script torchrun", "-m torch.distributed.run"),
        ("package.train", "there is no script package.train", "run -m package.train"),
        ("package", "package is a folder without __main__.py", "give the script itself"),
        ("torch.py", "there is no script torch.py", "paths are taken from"),
    ],
)
def test_a_script_that_is_not_there(script: str, message: str, hint: str) -> None:
    with pytest.raises(AmpDoctorError) as caught:
        command_line(script, [], module=False)
    assert caught.value.message == message
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("module", ["no_such_module", "no_such.module", "", ".", "./train.py"])
def test_a_module_that_is_not_there(module: str) -> None:
    with pytest.raises(AmpDoctorError, match="there is no module"):
        command_line(module, [], module=True)


@pytest.mark.parametrize(("script", "name"), [("train.py", "train"), ("-", "stdin"), ("application/", "application")])
def test_the_name_of_the_run(script: str, name: str) -> None:
    assert stem(script) == name


def test_the_name_of_a_run_of_this_folder(tmp_path: Path) -> None:
    assert stem(".") == tmp_path.name
