"""What run.json says of the machine, the versions and the settings that bear on precision."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist

from ampdoctor._version import __version__
from ampdoctor.record.headroom import cuda_in_use
from ampdoctor.trace.info import RunInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def world_size() -> int:
    """Return how many ranks the training has: as its process group says, or its launcher where there is none yet."""
    return int(dist.get_world_size()) if _has_process_group() else _told("WORLD_SIZE", 1)


def rank() -> int:
    """Return which of the ranks this is; launchers of trainings that start themselves tell it to nobody before."""
    return int(dist.get_rank()) if _has_process_group() else _told("RANK", 0)


def is_one_of_many() -> bool:
    """Whether other ranks train along."""
    return world_size() > 1


def _has_process_group() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def _told(variable: str, otherwise: int) -> int:
    told = os.environ.get(variable, "")
    return int(told) if told.isdecimal() else otherwise


def describe_run(recording: dict[str, Any]) -> RunInfo:
    """Return what can be said of the run before its first step."""
    here = _working_directory()
    return RunInfo(
        started=time.time(),
        command=tuple(sys.orig_argv),
        cwd=str(here),
        pid=os.getpid(),
        host=socket.gethostname(),
        git_commit=_git_commit(here),
        world_size=world_size(),
        device=_device(),
        versions={
            "ampdoctor": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
            "cuda": torch.version.cuda or "",
        },
        precision=_precision_settings(),
        recording=recording,
    )


def _device() -> str:
    """A CUDA context is never made for the sake of a name."""
    if cuda_in_use():
        return f"cuda: {torch.cuda.get_device_name()}"
    return f"cpu: {platform.machine()}, {torch.get_num_threads()} threads"


def _precision_settings() -> dict[str, Any]:
    matmul = torch.backends.cuda.matmul
    settings: dict[str, Callable[[], Any]] = {
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "allow_tf32_matmul": lambda: matmul.allow_tf32,
        "allow_tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
        "allow_fp16_reduced_precision_reduction": lambda: matmul.allow_fp16_reduced_precision_reduction,
        "allow_bf16_reduced_precision_reduction": lambda: matmul.allow_bf16_reduced_precision_reduction,
    }
    found = {}
    for name, read in settings.items():
        try:
            found[name] = read()
        except RuntimeError:  # torch refuses the old names where the new fp32_precision ones were used
            found[name] = None
    return found


def _git_commit(start: Path) -> str | None:
    """Read the commit from the files: starting a process from inside the training would be a risk."""
    for folder in (start, *start.parents):
        git = folder / ".git"
        if git.exists():
            try:
                return _head(git)
            except (OSError, UnicodeDecodeError):
                return None
    return None


def _head(git: Path) -> str | None:
    if git.is_file():  # a worktree or a submodule: the file says where its folder is
        git = git.parent / git.read_text(encoding="utf-8").removeprefix("gitdir: ").strip()
    name = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not name.startswith("ref: "):
        return name
    name, common = name.removeprefix("ref: "), git / "commondir"
    if common.is_file():
        git = git / common.read_text(encoding="utf-8").strip()
    if (git / name).is_file():
        return (git / name).read_text(encoding="utf-8").strip()
    packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # somebody has removed it
        return Path()
