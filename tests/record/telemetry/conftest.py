"""A library in place of NVML's, and processes that load it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Stub:
    """A folder with a library in it that the real binding takes for NVML; without one there is no library."""

    folder: Path

    def sample(self, *situations: dict[str, Any]) -> list[dict[str, Any]]:
        """Sample in one situation after another and return what was said, and the looks."""
        ended = self.run("sample.py", json.dumps(situations))
        found: list[dict[str, Any]] = json.loads(ended.stdout)
        return found

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "STUB_"))}
        return subprocess.run(
            [sys.executable, str(HERE / "scripts" / script), *arguments], check=True, text=True, timeout=TIMEOUT_S,
            stdout=subprocess.PIPE, env=others | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[2]),
            "LD_LIBRARY_PATH": str(self.folder)} | environment,
        )  # fmt: skip


def _compiled(folder: Path, *options: str) -> Stub:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler, and Linux")
    target = str(folder / "libnvidia-ml.so.1")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", *options, "-o", target, str(HERE / "libnvidia_ml.c")]
    subprocess.run(command, check=True)
    return Stub(folder)


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    """NVML of a present driver."""
    return _compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    """NVML of an old driver, which lacks functions."""
    return _compiled(tmp_path_factory.mktemp("old_nvml"), "-DOLD_DRIVER")


@pytest.fixture
def no_library(tmp_path: Path) -> Stub:
    """A machine without NVML."""
    return Stub(tmp_path)
