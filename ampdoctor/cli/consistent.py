"""Options of `ampdoctor check` that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor.gate.baseline import read_baseline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.config import GateSettings


def must_be_consistent(settings: GateSettings, limits: Iterable[str], *, update: bool, out: Path | None) -> None:
    """Refuse options that can't all be meant.

    Raises:
        AmpDoctorError: two of them contradict each other.
    """
    both = [glob for glob in settings.select if glob in settings.ignore]
    if both:
        raise AmpDoctorError(f"{both[0]} is both selected and ignored", hint="leave out --select or --ignore for it")
    keys = [text.partition("=")[0].strip() for text in limits]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise AmpDoctorError(f"there are two limits for {twice}", hint="give one --max for each metric and sites")
    if settings.where("baseline_missing") == "command line" and not settings.baseline:
        raise AmpDoctorError("--baseline-missing without a baseline", hint="name one: --baseline FILE")
    if update:
        _must_be_updatable(settings)
    if out is not None and settings.baseline and out.resolve() == Path(settings.baseline).resolve():
        raise AmpDoctorError(f"{out} is the baseline", hint="choose another file for the report with -o")


def _must_be_updatable(settings: GateSettings) -> None:
    if not settings.baseline:
        raise AmpDoctorError("--update without a baseline to write", hint="name its file: --baseline FILE")
    if Path(settings.baseline).is_dir():
        hint = "write a file from it: ampdoctor baseline RUN -o FILE"
        raise AmpDoctorError(f"{settings.baseline} is a run, which --update can't change", hint=hint)
    path = Path(settings.baseline)
    runs = read_baseline(path).runs if path.exists() else 0
    if runs > 1:
        hint = f"write it from several runs once more: ampdoctor baseline RUN RUN -o {path} --force"
        raise AmpDoctorError(f"{path} is of {runs} runs: --update would leave what one run came to", hint=hint)
