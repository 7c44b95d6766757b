"""What every format makes of the sample runs is what was accepted by `make bless`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.bless import sample_folders
from tools.golden import OUTPUTS, outputs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("folder", sample_folders(), ids=lambda folder: folder.name)
def test_outputs_are_the_accepted_ones(folder: Path) -> None:
    made = dict(outputs(folder))
    kept = {file.name: file.read_text(encoding="utf-8") for file in (OUTPUTS / folder.name).iterdir()}
    assert set(made) == set(kept), "run `make bless`"
    assert {name: text for name, text in made.items() if text != kept[name]} == {}
