"""The public names: all there, all lazy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ampdoctor


@pytest.mark.parametrize("name", ampdoctor.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(ampdoctor, name) is not None
    assert name in dir(ampdoctor)


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'wacth'"):
        getattr(ampdoctor, "wacth")  # noqa: B009 - mypy would see the misspelling


def test_the_import_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import ampdoctor; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(process.stdout.split())
    assert loaded - set(sys.stdlib_module_names) == {"ampdoctor"}


@pytest.mark.parametrize("name", ["diagnose", "open_run", "watch"])
def test_the_public_functions_do_not_load_torch(name: str) -> None:
    code = f"import sys, ampdoctor; ampdoctor.{name}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
