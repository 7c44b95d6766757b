"""Recording a training of a test's own and reading it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.record.recorder import Recorder
from ampdoctor.trace.run import Run, open_run
from ampdoctor.trace.writer import prepare_folder

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.schema import CallRow, ScalerRow, TensorRow


class Recording:
    """A run folder and what was recorded into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run: Run | None = None

    def start(self, **settings: Any) -> Recorder:
        """Return a recorder into the folder, not started yet."""
        prepare_folder(self.folder)
        return Recorder(self.folder, **settings)

    @property
    def run(self) -> Run:
        """The recorded run, once the recorder has stopped."""
        if self._run is None:
            self._run = open_run(self.folder)
        return self._run

    def tensors(self, role: str | None = None, **columns: Any) -> list[TensorRow]:
        """Return the rows of `role` whose columns have the given values."""
        rows = self.run.tensors(role) if role else self.run.tensors()
        return [row for row in rows if _matches(row, columns)]

    def tensor(self, role: str, **columns: Any) -> TensorRow:
        """Return the one row that there is."""
        (row,) = self.tensors(role, **columns)
        return row

    def calls(self, *kinds: str, **columns: Any) -> list[CallRow]:
        """Return the calls of `kinds` (all without any)."""
        return [c for c in self.run.calls if (not kinds or c.call in kinds) and _matches(c, columns)]

    def events(self, **columns: Any) -> list[ScalerRow]:
        """Return the scaler events."""
        return [e for e in self.run.scaler if _matches(e, columns)]


def _matches(row: Any, columns: dict[str, Any]) -> bool:
    return all(getattr(row, name) == value for name, value in columns.items())
