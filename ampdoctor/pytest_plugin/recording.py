"""One recording of a test, and what a test may assert of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ampdoctor.config import GateSettings
from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError, RunNotFoundError
from ampdoctor.gate.baseline import read_baseline
from ampdoctor.gate.checks import check
from ampdoctor.gate.metrics import METRICS, Worse
from ampdoctor.gate.readings import read_metrics
from ampdoctor.gate.settings import policy_of
from ampdoctor.pytest_plugin.known import Known
from ampdoctor.pytest_plugin.words import complaint_of
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from ampdoctor.config import Config
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.gate.baseline import Baseline
    from ampdoctor.gate.readings import Reading
    from ampdoctor.record.recorder import Recorder
    from ampdoctor.trace.run import Run

_SITES = 4
"""Sites that are named where a baseline and a run have none in common."""


class Recording:
    """A recorded training. Use it as a context manager; assert once the block has ended.

    Attributes:
        recorder: what records it; `rec.recorder.step()` for loops that have no optimizer.

    Args:
        recorder: the recorder.
        config: settings of the project that the test belongs to.
        root: the folder that paths of baselines start from.
        kept: the trace is kept if the test fails.
    """

    def __init__(self, recorder: Recorder, config: Config, root: Path, *, kept: bool) -> None:
        self.recorder = recorder
        self._config, self._root, self._kept = config, root, kept
        self._over = False
        self._run: Run | None = None

    def __enter__(self) -> Self:
        self.recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recorder.__exit__(kind, error, trace)
        self._over = True

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.recorder.folder

    def __repr__(self) -> str:
        return f"<recording in {self.folder}>"

    @property
    def run(self) -> Run:
        """The run, once it has ended."""
        __tracebackhide__ = True
        if self._run is None:
            self._run = self._opened()
        return self._run

    def _opened(self) -> Run:
        __tracebackhide__ = True
        if not self._over:
            raise AssertionError("it is still being recorded: assert after the `with` block")
        nothing = (
            "no training step was recorded: the `with` block must hold a step of an optimizer, or rec.recorder.step()"
        )
        try:
            run = open_run(self.folder)
        except RunNotFoundError:
            raise AssertionError(nothing) from None
        if run.info.status == "degraded":
            raise AssertionError(f"the recorder gave up, the test's training went on: {run.info.degraded}")
        if not run.steps:
            raise AssertionError(nothing)
        return run

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What is wrong with it."""
        return diagnose(self.run, self._config)

    @cached_property
    def readings(self) -> dict[str, dict[str, Reading]]:
        """What it comes to: by metric, then by site; the run as a whole is under the empty site."""
        found: dict[str, dict[str, Reading]] = Known("metric")
        for reading in read_metrics(self.run):
            found.setdefault(reading.metric, Known("site"))[reading.site] = reading
        return found

    def assert_no_findings(
        self, fail_on: str = "warning", *, select: Iterable[str] = (), ignore: Iterable[str] = ()
    ) -> None:
        """Fail where something is found that is at least as severe as `fail_on`.

        Args:
            fail_on: error, warning or note.
            select: globs over names and codes of the rules whose findings count; by default as the settings say.
            ignore: globs over those whose findings do not.
        """
        __tracebackhide__ = True
        said = replace(self._config.gate, max={}).over("the test", fail_on=fail_on, select=[*select], ignore=[*ignore])
        self._assert(said)

    def assert_max(self, *, sites: str = "", **limits: float | str) -> None:
        """Fail where a metric is above its limit: `rec.assert_max(flushed=0.01, sites="encoder.*")`.

        Args:
            sites: glob over sites; by default the run as a whole is meant.
            limits: by metric; a number, or a text such as "1%" or "2GiB".
        """
        __tracebackhide__ = True
        self._assert(GateSettings(fail_on="never").over("the test", limits=limit_texts(Worse.MORE, limits, sites)))

    def assert_min(self, **limits: float | str) -> None:
        """Fail where a metric that should be large is below its limit: `rec.assert_min(cosine=0.99)`."""
        __tracebackhide__ = True
        self._assert(GateSettings(fail_on="never").over("the test", limits=limit_texts(Worse.LESS, limits)))

    def assert_no_regression(self, baseline: str | os.PathLike[str]) -> None:
        """Fail where the run is worse than the runs of a baseline: its numbers, and findings that are new.

        Args:
            baseline: file that `ampdoctor baseline` has written; relative paths start at pytest's rootdir.
        """
        __tracebackhide__ = True
        self._assert(replace(self._config.gate, max={}), baseline)

    def _assert(self, said: GateSettings, baseline: str | os.PathLike[str] | None = None) -> None:
        __tracebackhide__ = True
        complaint = self.complaint(said, baseline)
        if complaint:
            raise AssertionError(complaint)

    def complaint(self, said: GateSettings, baseline: str | os.PathLike[str] | None = None) -> str:
        """Return why the run does not pass; empty where it does."""
        __tracebackhide__ = True
        try:
            policy, known = policy_of(said), self._baseline(baseline)
        except AmpDoctorError as error:
            raise AssertionError(f"{error.message}\nhint: {error.hint}" if error.hint else error.message) from None
        result = check(self.run, self.diagnosis, policy, known)
        if result.foreign:
            gone, new = (", ".join(sites[:_SITES]) or "none" for sites in (result.gone_sites, result.new_sites))
            return f"no site of the baseline is in this run: it has {gone}, the run {new}. Is it that of another model?"
        return complaint_of(result)

    def _baseline(self, baseline: str | os.PathLike[str] | None) -> Baseline | None:
        if baseline is None:
            return None
        path = self._root / baseline
        if not path.exists():
            run = str(self.folder) if self._kept else "RUN"
            how = "" if self._kept else "run pytest with --ampdoctor-dir DIR, which keeps the run below DIR, then "
            raise AmpDoctorError(f"there is no baseline {path}", f"{how}ampdoctor baseline {run} -o {path}")
        known = read_baseline(path)
        if known.empty:
            raise AmpDoctorError(f"the baseline {path} is empty: everything would pass", "write it anew")
        return known


def limit_texts(worse: Worse, limits: dict[str, Any], sites: str = "") -> list[str]:
    """Return limits as the command line has them: a largest value where more is worse, a least one where less is.

    Raises:
        AssertionError: a metric that there is none of, or that goes the other way.
    """
    __tracebackhide__ = True
    allowed = [metric.name for metric in METRICS.values() if metric.worse is worse]
    wrong = [name for name in limits if name not in allowed]
    if wrong:
        which = "largest" if worse is Worse.MORE else "smallest"
        raise AssertionError(f"there is no {which} {', '.join(wrong)} to set; there are: {', '.join(allowed)}")
    at = f"@{sites}" if sites else ""
    return [f"{name}{at}={value}" for name, value in limits.items()]
