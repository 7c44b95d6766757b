"""MLflow: metrics by step, findings as tags and artifacts, the diagnosis as text and JSON beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.report import json, text
from ampdoctor.sinks.base import PREFIX, library
from ampdoctor.sinks.wording import key, markdown, title

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.sinks.base import StepMetrics

BATCH = 1000
"""Metrics that MLflow takes at a time."""

TAG_LENGTH = 500
"""Characters of a tag, which every version and server takes; the artifact holds all."""

TAG = "ampdoctor."
"""Beginning of our tags: a slash would need quoting in a search, `tags.ampdoctor.verdict` does not."""


class MlflowSink:
    """Writes to an MLflow run, through a client: MLflow's active run is that of a thread, and ours is another.

    Args:
        run_id: the run; the active one where left out.
        finish: end the run with the recording.

    Raises:
        AmpDoctorError: mlflow is missing, or no run is active.
    """

    def __init__(self, run_id: str | None = None, *, finish: bool = False) -> None:
        mlflow = library("mlflow", "mlflow")
        if run_id is None:
            active = mlflow.active_run()
            if active is None:
                raise AmpDoctorError("no MLflow run is active", hint="call mlflow.start_run() before the sink is made")
            run_id = active.info.run_id
        self._run_id = run_id
        self._client: Any = mlflow.MlflowClient()
        self._metric = library("mlflow.entities", "mlflow").Metric
        self._finish = finish
        self._waiting: list[Any] = []

    def metrics(self, metrics: StepMetrics) -> None:
        """Queue the numbers of a step."""
        time_ms = int(metrics.time * 1000.0)
        self._waiting += [self._metric(name, value, time_ms, metrics.step) for name, value in metrics.values.items()]

    def finding(self, finding: Finding) -> None:
        """Set a tag, by which runs can be searched, and keep the page as an artifact."""
        self._tag(f"finding.{key(finding)}", f"{title(finding)}: {finding.summary}")
        self._client.log_text(self._run_id, markdown(finding), f"{PREFIX}findings/{key(finding)}.md")

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Set the verdict as a tag and keep the reports as artifacts."""
        self._tag("verdict", diagnosis.verdict)
        self._client.log_text(self._run_id, text.render(diagnosis), f"{PREFIX}diagnosis.txt")
        self._client.log_text(self._run_id, json.render(diagnosis), f"{PREFIX}diagnosis.json")

    def flush(self) -> None:
        """Send the metrics that wait."""
        while self._waiting:
            self._client.log_batch(self._run_id, metrics=self._waiting[:BATCH])
            del self._waiting[:BATCH]

    def close(self) -> None:
        """Flush, and end the run where that was asked for."""
        self.flush()
        if self._finish:
            self._client.set_terminated(self._run_id)

    def _tag(self, name: str, value: str) -> None:
        self._client.set_tag(self._run_id, TAG + name, value[:TAG_LENGTH])


def for_export(where: str, name: str) -> MlflowSink:
    """Return the sink for `--to mlflow[=EXPERIMENT]`: a new run, as the environment has it where none is named."""
    mlflow = library("mlflow", "mlflow")
    if where:
        mlflow.set_experiment(where)
    return MlflowSink(mlflow.start_run(run_name=name).info.run_id, finish=True)
