"""Weights & Biases: metrics by their own step, findings as alerts, the diagnosis in the run's summary."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Severity
from ampdoctor.sinks.base import PREFIX, library
from ampdoctor.sinks.wording import key, markdown, title

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.sinks.base import StepMetrics

STEP = f"{PREFIX}step"
"""The metric that ours are drawn against. W&B's own step counts rows of all kinds, and ours come later than yours."""

ALERT_TITLE = 64
"""Characters that the title of an alert must stay below."""

AT_ONCE = timedelta(milliseconds=1)
"""Time for which W&B holds alerts of the same title back: each of ours comes once. Zero stands for its default."""

_LEVELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARN", Severity.NOTE: "INFO"}


class WandbSink:
    """Writes to a W&B run.

    W&B drops rows whose `step=` is behind its own count, which each of our rows advances. Code that passes `step=` to
    `wandb.log` should therefore give us a run beside its own: `WandbSink(wandb.init(reinit="create_new"))`.

    Args:
        run: the run; the active one where left out.
        finish: end the run with the recording.

    Raises:
        AmpDoctorError: wandb is missing, or no run is active.
    """

    def __init__(self, run: Any = None, *, finish: bool = False) -> None:
        run = run if run is not None else library("wandb", "wandb").run
        if run is None:
            raise AmpDoctorError("no W&B run is active", hint="call wandb.init(...) before the sink is made")
        self._run = run
        self._finish = finish
        self._found: dict[str, str] = {}
        run.define_metric(STEP, hidden=True)
        run.define_metric(f"{PREFIX}*", step_metric=STEP)

    def metrics(self, metrics: StepMetrics) -> None:
        """Log the numbers of a step as one row."""
        self._run.log({STEP: metrics.step, **metrics.values})

    def finding(self, finding: Finding) -> None:
        """Raise an alert, and name the finding in the summary."""
        self._run.alert(
            title=f"ampdoctor: {title(finding)}"[: ALERT_TITLE - 1],
            text=markdown(finding),
            level=_LEVELS[finding.severity],
            wait_duration=AT_ONCE,
        )
        self._found[key(finding)] = finding.summary
        self._run.summary[f"{PREFIX}findings"] = dict(self._found)

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Put the verdict and the causes into the summary, where runs are compared."""
        self._run.summary[f"{PREFIX}verdict"] = diagnosis.verdict
        self._run.summary[f"{PREFIX}precision"] = diagnosis.precision.sentence
        self._run.summary[f"{PREFIX}faults"] = len(diagnosis.faults)

    def flush(self) -> None:
        """Do nothing: W&B sends by itself."""

    def close(self) -> None:
        """End the run where that was asked for."""
        if self._finish:
            self._run.finish()


def for_export(where: str, name: str) -> WandbSink:
    """Return the sink for `--to wandb[=PROJECT]`: a new run, as the environment has it where no project is named."""
    wandb = library("wandb", "wandb")
    return WandbSink(wandb.init(project=where or None, name=name, job_type="ampdoctor"), finish=True)
