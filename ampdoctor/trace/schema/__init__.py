"""THE contract: every table of a run, one frozen dataclass a table, one field a column.

A field's Python type says what readers get and whether null is possible; its metadata holds the Arrow type, the unit
and the meaning. README and dashboard take their text from here. `None` (null) is "not measured", 0 is "measured zero".

Adding a nullable column or a table keeps VERSION. Anything that changes the meaning of what is there raises it, and
readers accept VERSION and VERSION - 1.
"""

from ampdoctor.trace.schema.calls import CallRow
from ampdoctor.trace.schema.columns import TABLES, VERSION, Column, Table
from ampdoctor.trace.schema.gpu import GpuRow
from ampdoctor.trace.schema.ledger import COPY, MemoryRow, PaceRow, TimingRow
from ampdoctor.trace.schema.roundings import RoundingRow
from ampdoctor.trace.schema.training import AccumulatorRow, ModuleRow, OptimizerRow, ScalerRow, StepRow, TensorRow
from ampdoctor.trace.schema.twins import OpRow, TwinRow, TwinStepRow

OLDEST_READABLE = 1

__all__ = [
    "COPY",
    "OLDEST_READABLE",
    "TABLES",
    "VERSION",
    "AccumulatorRow",
    "CallRow",
    "Column",
    "GpuRow",
    "MemoryRow",
    "ModuleRow",
    "OpRow",
    "OptimizerRow",
    "PaceRow",
    "RoundingRow",
    "ScalerRow",
    "StepRow",
    "Table",
    "TensorRow",
    "TimingRow",
    "TwinRow",
    "TwinStepRow",
]
