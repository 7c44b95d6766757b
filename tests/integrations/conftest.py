"""What the tests of the recorder rest on holds here too: errors of ours raise, and nothing of ours stays behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.record.conftest import _fresh_process, _nothing_left_behind, _strict, recording

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["_fresh_process", "_nothing_left_behind", "_strict", "recording"]


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Launchers and frameworks keep their settings there, and whatever is wanted from a hub is not to be had here."""
    before = dict(os.environ)
    os.environ["HF_HUB_OFFLINE"] = "1"
    yield
    os.environ.clear()
    os.environ.update(before)
