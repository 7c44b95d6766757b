"""What a sink is: the few things that an experiment tracker is told of a run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding

PREFIX = "ampdoctor/"
"""Beginning of everything that we call by a name in a tracker: the rest of the run is the user's."""


@dataclass(frozen=True)
class StepMetrics:
    """The numbers of one step.

    Attributes:
        step: index of the step.
        time: when it ended, seconds since the epoch.
        values: by the metric's full name; what was not measured is not in it.
    """

    step: int
    time: float
    values: Mapping[str, float]


class Sink(Protocol):
    """Takes what is known of a run to a tracker.

    It is called by one thread at a time, not always the same. What it raises ends it, and never the training.
    """

    def metrics(self, metrics: StepMetrics) -> None:
        """Take the numbers of the next step."""

    def finding(self, finding: Finding) -> None:
        """Take an error or a warning; each comes once, and again only where it has become worse."""

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Take the diagnosis of the whole run, at its end."""

    def flush(self) -> None:
        """Let go of what is held back: others are looking on."""

    def close(self) -> None:
        """Flush, and end what the sink itself has opened; what it was given stays the user's."""


def library(module: str, package: str) -> Any:
    """Return the imported `module` of a tracker that `package` installs.

    Raises:
        AmpDoctorError: it is not installed.
    """
    hint = f"pip install {package}"
    try:
        found = import_module(module)
    except ImportError as error:
        raise AmpDoctorError(f"{package} can't be imported: {error}", hint=hint) from None
    if getattr(found, "__file__", None) is None:  # trackers leave folders of their own name, which Python imports
        raise AmpDoctorError(f"{package} is not installed: {module} is a mere folder here", hint=hint)
    return found
