"""Writing the report of a run to a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.engine import diagnose
from ampdoctor.errors import OutputExistsError, OutputNotWritableError
from ampdoctor.trace.folders import check_holds_a_run
from ampdoctor_dashboard.data.opened import OpenedRun
from ampdoctor_dashboard.report.document import document
from ampdoctor_dashboard.words import check_language, words_of

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.config import Config


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        path: where.
        bytes: how much.
        verdict: what it says first, in English.
    """

    path: Path
    bytes: int
    verdict: str


def write_report(
    run: Path, out: Path, *, lang: str = "en", force: bool = False, config: Config | None = None
) -> Written:
    """Write the report of a run to a file.

    Args:
        run: the run folder.
        out: the file.
        lang: its language.
        force: replace the file where there is one.
        config: settings of the diagnosis.

    Raises:
        OutputExistsError: there is such a file, and it is not to be replaced.
        OutputNotWritableError: it can't be written.
        AmpDoctorError: the run can't be read, or there is no such language.
    """
    check_language(lang)
    if out.is_dir():
        raise OutputNotWritableError(f"{out} is a folder", hint="give the name of a file")
    if out.exists() and not force:
        raise OutputExistsError(f"{out} exists already", hint="choose another with --out, or add --force to replace it")
    check_holds_a_run(run)
    opened = OpenedRun(run.resolve().name, run.resolve())
    diagnosis = diagnose(opened.judged(), config)
    text = document(opened, diagnosis, words_of(lang)).encode("utf-8", "replace")
    try:
        out.write_bytes(text)
    except OSError as error:
        raise OutputNotWritableError(
            f"cannot write {out}: {error.strerror or error}", hint="choose another with --out"
        ) from None
    return Written(out, len(text), diagnosis.verdict)
