"""The wheel holds everything that the command needs; an editable install would hide what it lacks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow


def _run(command: Sequence[str | Path], cwd: Path) -> str:
    """Run a command to its end and return what it printed; a failure shows its output."""
    process = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, from which the repository cannot be imported by accident."""
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def wheel(workspace: Path, repository: Path, repository_files: list[Path]) -> Path:
    """The wheel, built from a copy: a build leaves folders behind in its source tree."""
    source = workspace / "source"
    for path in repository_files:
        target = source / path.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    _run([*build, workspace, source], cwd=workspace)
    (built,) = workspace.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(workspace: Path, wheel: Path) -> Path:
    """The scripts folder of a fresh environment that holds the wheel.

    The dependencies are borrowed from the environment of this test, so that nothing is downloaded.
    Its editable install of ampdoctor is not: that hangs on a .pth file of its own, and .pth files
    are read in an environment's own site-packages only.
    """
    environment = workspace / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    _run([*pip, python, "install", "--quiet", "--no-deps", "--no-index", wheel], cwd=workspace)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)), encoding="utf-8")
    return environment / "bin"


def test_the_command_starts(scripts: Path, workspace: Path) -> None:
    assert "diagnose" in _run([scripts / "ampdoctor", "--help"], cwd=workspace)


def test_the_format_table_is_printed(scripts: Path, workspace: Path) -> None:
    assert "bf16" in _run([scripts / "ampdoctor", "formats"], cwd=workspace).lower()


@pytest.mark.parametrize("package", ["ampdoctor", "ampdoctor_dashboard"])
def test_packages_are_installed_and_typed(scripts: Path, workspace: Path, package: str) -> None:
    code = f"import {package}; print({package}.__file__)"
    folder = Path(_run([scripts / "python", "-c", code], cwd=workspace).strip()).parent
    assert folder.is_relative_to(workspace)
    assert (folder / "py.typed").is_file()


def test_the_installed_version_is_the_source_version(scripts: Path, workspace: Path) -> None:
    code = (
        "from importlib.metadata import version; from ampdoctor._version import __version__\n"
        "print(version('ampdoctor') == __version__)"
    )
    assert _run([scripts / "python", "-c", code], cwd=workspace).strip() == "True"


def test_no_bytecode_is_shipped(scripts: Path, wheel: Path, workspace: Path) -> None:
    listing = _run([sys.executable, "-m", "zipfile", "--list", wheel], cwd=workspace)
    assert ".pyc" not in listing


@pytest.mark.parametrize(("value", "armed"), [("arm", True), ("", False)])
def test_a_process_is_armed_by_its_environment_alone(scripts: Path, workspace: Path, value: str, armed: bool) -> None:
    code = "import sys, threading; print('ampdoctor-armed' in [t.name for t in threading.enumerate()])"
    command: list[str | Path] = ["/usr/bin/env", f"AMPDOCTOR={value}", scripts / "python", "-c", code]
    assert _run(command, cwd=workspace).strip() == str(armed)
    loaded = "import sys; print('ampdoctor' in sys.modules)"
    assert _run([*command[:-1], loaded], cwd=workspace).strip() == str(armed)
