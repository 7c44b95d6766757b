"""Where reports are printed: consoles that are plain when they are no terminal, and the few ways to print to them."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, cast

from rich.console import Console
from rich.text import Text

from ampdoctor.report import gate_page, text
from ampdoctor.report.layout import PLAIN_WIDTH, Page, clean
from ampdoctor.report.streams import Output, Remarks

if TYPE_CHECKING:
    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult

_TO_LINE_START = "\r\x1b[K"
"""Clears a progress bar that somebody else draws on this line; it is drawn anew below."""


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr as they are now.

    Nothing that is printed on stderr ever raises. On stdout a reader that left is no error, and anything else an
    AmpDoctorError.
    """
    stream = cast("IO[str]", Remarks(sys.stderr) if stderr else Output(sys.stdout))
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show(page: Page, to: Console) -> None:
    """Print `page`; its lines are wrapped already."""
    to.print(page.text(), soft_wrap=True)


def show_diagnosis(diagnosis: Diagnosis, to: Console) -> None:
    """Print the report in the width and the colours of `to`."""
    show(text.page(diagnosis, to.width), to)


def show_result(result: GateResult, to: Console) -> None:
    """Print the result of a gate in the width and the colours of `to`."""
    show(gate_page.page(result, to.width), to)


def show_finding(finding: Finding, to: Console) -> None:
    """Print one finding of a run that is still going on, briefly; on one line where it goes to a log."""
    step = finding.location.first_step
    label = f"ampdoctor: {'' if step is None else f'step {step}: '}{finding.name}: "
    if not to.is_terminal:
        to.print(Text(label + clean(finding.summary)), soft_wrap=True)
        return
    page = Page(to.width)
    page.say(finding.summary, label=label, label_style=text.STYLES[finding.severity], hang=2)
    if not to.is_dumb_terminal:
        to.file.write(_TO_LINE_START)
    show(page, to)


def tell(message: str, to: Console, *, style: str = "", hint: str = "") -> None:
    """Print one line, with a hint below it where there is one."""
    to.print(Text(f"ampdoctor: {clean(message)}", style), soft_wrap=True)
    if hint:
        to.print(Text(f"  hint: {clean(hint)}", "dim"), soft_wrap=True)
