"""How a table is declared: a dataclass whose fields say their Arrow type, unit and meaning."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1

STRING, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
INTS, FLOATS, STRINGS = pa.list_(INT), pa.list_(FLOAT), pa.list_(STRING)


@dataclass(frozen=True)
class Column:
    """One column as documented: name, Arrow type, unit ("" for none), meaning, whether null is possible."""

    name: str
    type: pa.DataType
    unit: str
    doc: str
    nullable: bool


@dataclass(frozen=True)
class Table:
    """One table of the trace: its name, meaning, row type and columns."""

    name: str
    doc: str
    row: type
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, stamped with the version."""
        return pa.schema(
            [pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns],
            metadata={"ampdoctor.schema_version": str(VERSION), "ampdoctor.table": self.name},
        )


TABLES: dict[str, Table] = {}
"""All tables by name."""

_Row = TypeVar("_Row")


def required(arrow: pa.DataType, doc: str, unit: str = "") -> Any:
    """Declare a column that is never null."""
    return field(metadata={"type": arrow, "doc": doc, "unit": unit, "nullable": False})


def nullable(arrow: pa.DataType, doc: str, unit: str = "") -> Any:
    """Declare a column where null is "not measured"."""
    return field(default=None, metadata={"type": arrow, "doc": doc, "unit": unit, "nullable": True})


def table(name: str) -> Callable[[type[_Row]], type[_Row]]:
    """Declare the dataclass that follows as the rows of the table `name`."""

    def register(row: type[_Row]) -> type[_Row]:
        columns = tuple(
            Column(f.name, f.metadata["type"], f.metadata["unit"], f.metadata["doc"], f.metadata["nullable"])
            for f in fields(row)  # type: ignore[arg-type]
        )  # fmt: skip
        TABLES[name] = Table(name, (row.__doc__ or "").strip(), row, columns)
        return row

    return register
