"""Fixtures that every part of the suite may use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the working tree."""
    return Path(__file__).parent.parent


@pytest.fixture(scope="session")
def repository_files(repository: Path) -> list[Path]:
    """Every file that is committed or could be: tracked, or untracked and not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (repository / name for name in listing.stdout.split("\0") if name)
    # A tracked file may be deleted in the working tree.
    return [path for path in paths if path.is_file()]
