"""Runs of `RunBuilder` as folders, which the dashboard opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ampdoctor.trace.info import write_info
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import prepare_folder, table_path
from ampdoctor_dashboard.data.opened import OpenedRun

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.builder import RunBuilder


def write_built(folder: Path, builder: RunBuilder) -> Path:
    """Write the run that `builder` makes into `folder`."""
    run = builder.build()
    prepare_folder(folder)
    write_info(folder, run.info)
    for name in TABLES:
        table = run.table(name)
        if table.num_rows:
            with pa.ipc.new_stream(table_path(folder, name, 0), table.schema) as stream:
                stream.write_table(table)
    return folder


def opened(folder: Path, builder: RunBuilder) -> OpenedRun:
    """Return the run that `builder` makes, opened from `folder`."""
    return OpenedRun(folder.name, write_built(folder, builder))
