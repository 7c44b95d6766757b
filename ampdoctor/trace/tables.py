"""Reading the tables of a run folder: all of most of them, and of a long run's tensors and calls what is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.trace.parts import joined, spread
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.selection import EACH_END, chosen_steps
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.stretches import judged_calls
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from ampdoctor.trace.run import Run


def load_table(folder: Path, name: str, rank: int, run: Run) -> tuple[pa.Table, list[str]]:
    """Return a table that one rank recorded, with the notices of reading it; of a long run what is judged of it.

    Raises:
        SchemaVersionError: written by a version that this one can't read.
        TraceCorruptError: it is not what it should be.
    """
    schema, path = TABLES[name], table_path(folder, name, rank)
    if not path.is_file():
        return schema.arrow.empty_table(), []
    if name == "tensors":
        return _judged_tensors(run, path, rank)
    contents = read_stream(path, schema)
    notices = [contents.notice] if contents.notice else []
    if name != "calls":
        return contents.table, notices
    troubles = [step for steps in run.marked_steps for step in (*steps[:EACH_END], *steps[-EACH_END:])]
    judged = judged_calls(contents.table, {*run.table("tensors")["step"].unique().to_pylist(), *troubles})
    run.judged_calls = judged.num_rows / max(contents.table.num_rows, 1)
    return judged, [*notices, *_left_out(judged, contents.table.num_rows, "calls", "each kind of step")]


def _judged_tensors(run: Run, path: Path, rank: int) -> tuple[pa.Table, list[str]]:
    schema = TABLES["tensors"]
    contents = read_stream(path, schema, lambda held: chosen_steps(held, run.marked_steps))
    notices = [contents.notice] if contents.notice else []
    recorded, table = contents.table.num_rows + contents.left_out, contents.table
    if spread(table) and len(run.ranks) > 1:
        steps = set(table["step"].to_pylist())
        files = [table_path(path.parent, "tensors", other) for other in run.ranks if other != rank]
        others = (read_stream(file, schema, lambda _: steps).table for file in files if file.is_file())
        table, incomplete = joined(table, others)
        if incomplete:
            notices.append(f"of {incomplete} tensors that are spread over ranks some parts were not recorded")
    return table, [*notices, *_left_out(table, recorded, "tensors", "each kind of trouble")]


def _left_out(judged: pa.Table, recorded: int, what: str, kinds: str) -> list[str]:
    if judged.num_rows == recorded:
        return []
    steps = len(judged["step"].unique())
    text = f"the run is long: {judged.num_rows} of {recorded} recorded {what} were judged, those of {steps} steps"
    return [f"{text}: its start and end, {kinds}, and steps in between"]
