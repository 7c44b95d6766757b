"""What `ampdoctor run` is asked to run, checked before anything is started or written."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.launch import python_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAUNCHERS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
    "deepspeed": "deepspeed.launcher.runner",
    "fabric": "lightning.fabric.cli",
}
"""Commands that start trainings, and the modules behind them."""

_LONGEST_LINE = 256


def command_line(script: str, arguments: Sequence[str], *, module: bool) -> list[str]:
    """Return the command line of the training, having checked that there is something to start.

    Raises:
        AmpDoctorError: there is no such script or module.
    """
    if module:
        _check_module(script)
        return python_command(["-m", script, *arguments])
    script = _command(script) or script
    try:
        _check_script(script)
    except OSError as error:
        raise AmpDoctorError(
            f"cannot read the script {script[:80]}: {error.strerror or error}",
            hint="check its name and the permissions of its folder",
        ) from None
    return python_command([script, *arguments])


def _command(name: str) -> str | None:
    """Return where the command of this name lies that is a Python script beside this interpreter: torchrun, say."""
    path = Path(sys.executable).parent / name
    try:
        if Path(name).name != name or name.startswith("python") or Path(name).exists() or not path.is_file():
            return None
        with path.open("rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError:
        return None
    return str(path) if first.startswith(b"#!") and b"python" in first else None


def _check_script(script: str) -> None:
    path = Path(script)
    if script == "-" or path.is_file() or (path / "__main__.py").is_file():
        return
    if path.is_dir():
        raise AmpDoctorError(f"{script} is a folder without __main__.py", hint="give the script itself")
    name = path.name
    if name.startswith("python"):
        hint = "leave out `python`: ampdoctor run SCRIPT [ARGS]"
    elif name in _LAUNCHERS:
        hint = f"it is not beside {sys.executable}; try its module: ampdoctor run -m {_LAUNCHERS[name]} [ARGS]"
    elif not name.endswith(".py") and _is_module(script):
        hint = f"to run it as a module: ampdoctor run -m {script}"
    else:
        hint = f"paths are taken from {Path.cwd()}"
    raise AmpDoctorError(f"there is no script {script}", hint=hint)


def _check_module(module: str) -> None:
    if not _is_module(module):
        raise AmpDoctorError(
            f"there is no module {module}", hint="is it installed for this python, or in this folder? " + sys.executable
        )


def _is_module(module: str) -> bool:
    """Whether the top-level package of `module` is where `python -m` would look, without importing anything."""
    working_directory = str(Path.cwd())
    sys.path.insert(0, working_directory)
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        return False
    finally:
        sys.path.remove(working_directory)


def stem(script: str) -> str:
    """Return the name of a script, for its run folder."""
    return "stdin" if script == "-" else Path(script).resolve().stem
