"""What `ampdoctor run` is asked to run: refused with a hint where it can't be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ampdoctor.cli.target import command_line, stem
from ampdoctor.errors import AmpDoctorError


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


@pytest.fixture
def beside_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands as an environment has it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def test_a_launcher_is_found_where_it_is_installed(beside_the_interpreter: Path) -> None:
    command = beside_the_interpreter / "torchrun"
    command.write_text(f"#!{beside_the_interpreter}/python\n", encoding="utf-8")
    assert command_line("torchrun", ["train.py"], module=False)[1:] == [str(command), "train.py"]


def test_a_script_of_that_name_comes_first(beside_the_interpreter: Path) -> None:
    (beside_the_interpreter / "torchrun").write_text("#!/usr/bin/python3\n", encoding="utf-8")
    Path("torchrun").touch()
    assert command_line("torchrun", [], module=False)[1:] == ["torchrun"]


@pytest.mark.parametrize("first_line", ["#!/bin/sh\n", "\x7fELF", ""])
def test_a_command_that_is_not_in_python(beside_the_interpreter: Path, first_line: str) -> None:
    (beside_the_interpreter / "torchrun").write_text(first_line, encoding="utf-8")
    with pytest.raises(AmpDoctorError) as caught:
        command_line("torchrun", [], module=False)
    assert caught.value.message == "there is no script torchrun"
    assert "ampdoctor run -m torch.distributed.run" in caught.value.hint


@pytest.mark.parametrize("module", ["no_such_module", "no_such.module", "", ".", "./train.py"])
def test_a_module_that_is_not_there(module: str) -> None:
    with pytest.raises(AmpDoctorError, match="there is no module"):
        command_line(module, [], module=True)


@pytest.mark.parametrize(("script", "name"), [("train.py", "train"), ("-", "stdin"), ("application/", "application")])
def test_the_name_of_the_run(script: str, name: str) -> None:
    assert stem(script) == name


def test_the_name_of_a_run_of_this_folder(tmp_path: Path) -> None:
    assert stem(".") == tmp_path.name
