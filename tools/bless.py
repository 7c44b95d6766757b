"""Records the sample runs anew, and writes their diagnoses and what every format makes of them as the expected ones.

`python -m tools.bless` records and judges; `python -m tools.bless --judge` only judges the traces that are there.
A trace holds no path, host or process of the machine that recorded it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ampdoctor.engine import diagnose
from ampdoctor.record.launch import Recording, finish, python_command, start
from ampdoctor.report.json import render
from ampdoctor.trace.info import RunInfo, read_info, write_info
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import prepare_folder
from tools import golden

SAMPLES = Path(__file__).resolve().parent.parent / "sample_runs"


def sample_folders() -> list[Path]:
    """Return the folders of the sample runs."""
    return sorted(path.parent for path in SAMPLES.glob("*/recipe.py"))


def record(folder: Path) -> None:
    """Run the recipe of `folder` under the recorder and keep its trace there."""
    scratch = folder / "recording"
    prepare_folder(scratch, force=True)
    code = start(python_command([f"sample_runs/{folder.name}/recipe.py"]), Recording(scratch)).wait()
    finish(scratch, code)
    write_info(scratch, anonymous(scratch))
    for file in [*scratch.glob("*.arrows"), scratch / "run.json"]:
        file.replace(folder / file.name)
    scratch.rmdir()


def anonymous(folder: Path) -> RunInfo:
    """Return run.json of `folder` without what belongs to one machine."""
    info = read_info(folder)
    return replace(info, command=("python", *info.command[1:]), cwd="", pid=0, host="", git_commit=None)


def expected(folder: Path) -> str:
    """Return the diagnosis of the sample in `folder` as JSON, the same wherever it lies."""
    return render(replace(diagnose(open_run(folder)), run=folder.name))


def main() -> None:
    """Record unless told to judge only, and write what is expected from now on."""
    for folder in sample_folders():
        if "--judge" not in sys.argv:
            record(folder)
        (folder / "expected.json").write_text(expected(folder), encoding="utf-8")
    for folder in sample_folders():
        golden.write(folder)


if __name__ == "__main__":
    main()
