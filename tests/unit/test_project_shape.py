"""The project's own promises: sizes, dependencies, a light import, nothing of one machine in it."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LONGEST_FILE = 300
LONGEST_FUNCTION = 60
MEDIAN_FILE = 100

HEAVY_MODULES = {"torch", "pyarrow", "numpy", "rich", "typer"}

# Written in halves, so that this file does not contain what it looks for.
REGISTRY_HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "pytorch" + ".org/whl"]
REGISTRY_HOSTS += ["npmjs" + ".org", "debian" + ".org", "anaconda" + ".org"]
MACHINE_PATHS = ["/" + "work/", "/" + "opt/wheels", "/" + "opt/pypi", "/" + "root/", "/" + "home/"]


@pytest.fixture(scope="module")
def python_files(repository_files: list[Path]) -> list[Path]:
    """Every Python file of the repository."""
    return [path for path in repository_files if path.suffix == ".py"]


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _function_lengths(path: Path) -> dict[str, int]:
    """Return the number of lines of each function in a file, by `file:line name`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions
    }


def _requirements(pyproject: dict[str, Any]) -> list[Requirement]:
    """Return every requirement on somebody else's package."""
    project = pyproject["project"]
    texts = [*pyproject["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        texts += extra
    requirements = [Requirement(text) for text in texts]
    return [requirement for requirement in requirements if requirement.name != project["name"]]


def test_no_file_is_too_long(python_files: list[Path]) -> None:
    too_long = {str(path): _lines(path) for path in python_files if _lines(path) > LONGEST_FILE}
    assert not too_long


def test_nothing_is_left_over_from_merging(repository_files: list[Path]) -> None:
    left = [str(p) for p in repository_files if p.suffix in {".orig", ".rej", ".bak", ".swp"}]
    assert not left


def test_no_function_is_too_long(python_files: list[Path]) -> None:
    lengths: dict[str, int] = {}
    for path in python_files:
        lengths |= _function_lengths(path)
    assert lengths
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def test_the_package_is_made_of_small_files(python_files: list[Path], repository: Path) -> None:
    package = repository / "ampdoctor"
    sizes = [_lines(path) for path in python_files if path.is_relative_to(package)]
    assert statistics.median(sizes) <= MEDIAN_FILE


def test_dependencies_have_lower_bounds_and_no_others(pyproject: dict[str, Any]) -> None:
    operators = {
        str(requirement): {specifier.operator for specifier in requirement.specifier}
        for requirement in _requirements(pyproject)
    }
    assert operators
    assert {text: found for text, found in operators.items() if found != {">="}} == {}


def test_torch_is_never_a_core_dependency(pyproject: dict[str, Any]) -> None:
    # Resolving torch anew can replace the CUDA build that somebody trains with.
    core = {Requirement(text).name for text in pyproject["project"]["dependencies"]}
    assert "torch" not in core


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, ampdoctor; print(*{name.partition('.')[0] for name in sys.modules})"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(process.stdout.split())
    assert "ampdoctor" in loaded
    assert not loaded & HEAVY_MODULES


def test_no_file_names_a_registry_or_a_machine_path(repository_files: list[Path], repository: Path) -> None:
    patterns = [pattern.encode() for pattern in [*REGISTRY_HOSTS, *MACHINE_PATHS]]
    found = {
        str(path.relative_to(repository)): pattern.decode()
        for path in repository_files
        for pattern in patterns
        if pattern in path.read_bytes()
    }
    assert not found


def test_the_changelog_has_an_unreleased_section(repository: Path) -> None:
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## [Unreleased]\n" in changelog
