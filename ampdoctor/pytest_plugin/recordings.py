"""What the fixture gives to a test: recordings, each in a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.config import load_config
from ampdoctor.gate.settings import policy_of
from ampdoctor.pytest_plugin.recording import Recording
from ampdoctor.session import reason_of, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.sinks.base import Sink

_LONGEST_NAME = 100


class Recordings:
    """Records the trainings of one test.

    Args:
        test: the test's name, for the folders.
        folder: where the test is; its settings are the nearest at or above it.
        root: the folder that paths of baselines start from.
        below: where folders of recordings are kept if the test fails; None to keep none.
    """

    def __init__(self, test: str, folder: Path, root: Path, below: Path | None) -> None:
        self._name = re.sub(r"[^\w.-]+", "-", test).strip("-")[-_LONGEST_NAME:]
        self._root, self._below = root, below
        self._temporary: list[Path] = []
        self.config = load_config(folder)
        self.all: list[Recording] = []

    def __repr__(self) -> str:
        return f"<recordings of {self._name}>"

    def watch(  # noqa: PLR0913 - what a user may say, all by keyword
        self,
        model: Any = None,
        *,
        optimizer: Any = None,
        scaler: Any = None,
        every: int | None = 1,
        budget: float = 0.03,
        sample_above: int | None = None,
        prove: bool | None = None,
        sinks: Sequence[Sink] = (),
    ) -> Recording:
        """Return a recording of what is trained in its `with` block.

        The arguments are those of `ampdoctor.watch`. But every step is examined unless `every` says otherwise: which
        ones are would depend on the machine's speed, and a test is to see the same each time.
        """
        folder = self._new_folder()
        recorder = watch(
            model, optimizer=optimizer, scaler=scaler, out=folder, every=every, budget=budget,
            sample_above=sample_above, prove=prove, report=False, sinks=sinks,
        )  # fmt: skip
        recording = Recording(recorder, self.config, self._root, kept=self._below is not None)
        self.all.append(recording)
        return recording

    def _new_folder(self) -> Path:
        if self._below is None:
            self._temporary.append(Path(tempfile.mkdtemp(prefix="ampdoctor-")))
            return self._temporary[-1]
        self._below.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:  # other processes make folders here, too
            folder = self._below / (self._name if number == 1 else f"{self._name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
            else:
                return folder

    def told(self, *, failed: bool) -> list[str]:
        """Return what there is to say of each recording, as JSON."""
        return [json.dumps(self._told(made, failed=failed)) for made in self.all]

    def _told(self, made: Recording, *, failed: bool) -> dict[str, Any]:
        kept = str(made.folder) if failed and self._below is not None else ""
        try:
            examined = made.diagnosis.examined
            found = [(f.severity.value, f.name, f.summary) for f in made.diagnosis.findings]
            policy = policy_of(replace(self.config.gate, max={}))
            failing = sum(policy.fails(f.severity) for f in made.diagnosis.findings)
        except AssertionError as error:
            return {"kept": kept, "trouble": str(error)}
        except Exception as error:  # noqa: BLE001 - the summary is no reason to fail a test
            return {"kept": kept, "trouble": reason_of(error)}
        counts = {"steps": examined.steps, "examined": examined.examined_steps, "failing": failing}
        return {"kept": kept, **counts, "findings": found}

    def whereabouts(self) -> str:
        """Return where the traces of the test are, if it recorded any."""
        if not self.all or self._below is None:
            return "to keep the trace of this test: pytest --ampdoctor-dir DIR" if self.all else ""
        return "\n".join(f"the trace is kept: ampdoctor diagnose {made.folder}" for made in self.all)

    def close(self, *, failed: bool) -> None:
        """End what is still recording, and remove the folders that nobody needs any more."""
        for made in self.all:
            made.recorder.stop()
        gone = self._temporary if self._below is None or failed else [made.folder for made in self.all]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
