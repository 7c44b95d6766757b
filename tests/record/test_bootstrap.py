"""What the training process loads before the user's first line."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from ampdoctor.record.launch import BOOTSTRAP, RECORDING_VARIABLE, Recording
from tests.record.launched import environment_of_a_child, python

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "import sys; print(sorted({'numpy', 'pyarrow', 'torch', 'statistics'} & sys.modules.keys()))"


def test_nothing_heavy_is_loaded_before_torch(tmp_path: Path) -> None:
    environment = environment_of_a_child()
    environment["PYTHONPATH"] = f"{BOOTSTRAP}:{environment['PYTHONPATH']}"
    environment[RECORDING_VARIABLE] = Recording(tmp_path / "run").to_environment()
    ended = subprocess.run([python(), "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
