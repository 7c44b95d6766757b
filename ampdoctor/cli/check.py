"""`ampdoctor check`: the gate for CI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor import gate
from ampdoctor.cli.baselines import baseline_at, judged, write_text
from ampdoctor.cli.consistent import must_be_consistent
from ampdoctor.cli.update import updated
from ampdoctor.config import load_config, settings_text
from ampdoctor.errors import AmpDoctorError
from ampdoctor.gate.baseline import HINT
from ampdoctor.gate.settings import policy_of
from ampdoctor.report import find_gate_format, known_gate_formats
from ampdoctor.report.gated import headline
from ampdoctor.report.terminal import console, show_result, tell

if TYPE_CHECKING:
    from ampdoctor.config import Config
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.gate.baseline import Baseline
    from ampdoctor.gate.policy import Policy
    from ampdoctor.gate.result import GateResult
    from ampdoctor.trace.run import Run


def check(
    run: Annotated[Path | None, typer.Argument(help="Folder of the run.", metavar="RUN")] = None,
    baseline: Annotated[
        str, typer.Option(metavar="FILE|RUN", help="What good runs came to: a file of `ampdoctor baseline`, or a run.")
    ] = "",
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="SEVERITY", help="From which severity on a new finding fails: error, warning, note, never."
        ),
    ] = "",
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--max", metavar="METRIC[@SITES]=VALUE", help="A limit, as in flushed=1%; may be given several times."
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="RULES", help="Only findings of these rules count: names, codes or globs."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULES", help="Findings of these rules do not count.")
    ] = None,
    baseline_missing: Annotated[
        str, typer.Option(metavar="ok|fail", help="What a baseline comes to that is not there, or empty.")
    ] = "",
    update: Annotated[
        bool, typer.Option("--update", help="Accept this run's numbers: write the baseline anew.")
    ] = False,
    show_config: Annotated[bool, typer.Option("--show-config", help="Show all settings in force, and exit.")] = False,
    report_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(known_gate_formats())}.")
    ] = "text",
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="File for the report.")] = None,
) -> int:
    """Fail where a run is worse than it may be.

    Exit codes: 0 passed, 1 failed, 2 bad usage or input (a missing baseline is), 3 a rule could not judge.
    """
    config = load_config(Path())
    settings = config.gate.over(
        fail_on=fail_on, limits=limits or (), select=select, ignore=ignore, baseline=baseline,
        baseline_missing=baseline_missing,
    )  # fmt: skip
    config = replace(config, gate=settings)
    policy, render = policy_of(settings), find_gate_format(report_format)
    if show_config:
        console().file.write(settings_text(config))
        return 0
    must_be_consistent(settings, limits or (), update=update, out=out)
    examined, diagnosis = _judged(run, config)
    result = _checked(examined, diagnosis, policy, config)
    if report_format == "text" and out is None:
        show_result(result, console())
    else:
        _written(result, render(result), out)
    if update:
        result = updated(result, examined, policy, _baseline(Path(settings.baseline), config), Path(settings.baseline))
    return exit_code(result, policy)


def _written(result: GateResult, text: str, out: Path | None) -> None:
    """Write a report to `out` and say so, or to stdout."""
    if out is None:
        console().file.write(text)
        return
    write_text(out, text)
    tell(f"{headline(result)}; see {out}", console(stderr=True))


def exit_code(result: GateResult, policy: Policy) -> int:
    """Return 1 where the gate fails, else 3 where a rule could not judge and findings matter, else 0."""
    if not result.passed:
        return 1
    return 3 if result.diagnosis.crashed and policy.fail_on is not None else 0


def _judged(path: Path | None, config: Config) -> tuple[Run, Diagnosis]:
    """Open and diagnose the run.

    Raises:
        AmpDoctorError: none was named, or there is nothing in it to check.
    """
    if path is None:
        hint = "ampdoctor check RUN, or --show-config for the settings"
        raise AmpDoctorError("which run is to be checked?", hint=hint)
    run, diagnosis = judged(path, config)
    if not run.steps:
        raise AmpDoctorError(f"no step was completed in {path}: there is nothing to check", hint="record a longer run")
    return run, diagnosis


def _checked(run: Run, diagnosis: Diagnosis, policy: Policy, config: Config) -> GateResult:
    """Check a run against the baseline, where one was asked for and is there."""
    if not config.gate.baseline:
        return gate.check(run, diagnosis, policy)
    path = Path(config.gate.baseline)
    known = _baseline(path, config)
    if known is not None and not diagnosis.examined.examined_steps:
        hint = "record it with --every 1, or check it without a baseline"
        raise AmpDoctorError("no step was examined: there is nothing to compare with the baseline", hint=hint)
    result = gate.check(run, diagnosis, policy, known)
    if known is not None:
        return result
    warning = f"there is no baseline {path}, or nothing in it: only findings and limits were checked"
    return replace(result, warnings=(*result.warnings, warning))


def _baseline(path: Path, config: Config) -> Baseline | None:
    """Return the baseline; None where it is missing or empty, and that is well.

    Raises:
        AmpDoctorError: it is missing, empty, or no baseline.
    """
    may_be_missing = config.gate.baseline_missing == "ok"
    if may_be_missing and not path.exists():
        return None
    known = baseline_at(path, config)
    if not known.empty:
        return known
    if not may_be_missing:
        raise AmpDoctorError(f"the baseline {path} is empty: whatever is compared with it would pass", hint=HINT)
    return None
