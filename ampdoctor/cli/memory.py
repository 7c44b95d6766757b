"""`ampdoctor memory`: where the memory of a step went; `ampdoctor memory plan`: what a training would need."""

from __future__ import annotations

import argparse
import importlib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from ampdoctor.analysis.memory.advice import advice
from ampdoctor.analysis.memory.layouts import layouts
from ampdoctor.analysis.memory.ledgers import PEAK, ledgers
from ampdoctor.cli.answers import AnswerFormat
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report import memory as report
from ampdoctor.report.terminal import console, show
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.memory.ledgers import Ledger
    from ampdoctor.trace.run import Run

PLAN = "plan"

_PLANNING = "ampdoctor.cli.memory_plan"


class Phase(str, Enum):
    """The moments of a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"
    PEAK = PEAK


class MemoryCommand(TyperCommand):
    """Leaves what follows the word `plan` alone: it has options of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left to parse."""
        if args[:1] == [PLAN]:
            ctx.meta[PLAN], args = args[1:], args[:1]
        return list(super().parse_args(ctx, args))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AmpDoctorError(message, hint=f"see `{self.prog} --help`")


def memory(
    context: typer.Context,
    run: Annotated[
        Path, typer.Argument(help="Folder of the run; or the word `plan` and what to plan.", metavar="RUN|plan")
    ],
    step: Annotated[int | None, typer.Option(help="A step whose memory was recorded; by default the last one.")] = None,
    phase: Annotated[Phase, typer.Option(help="The moment that is shown as a tree.")] = Phase.PEAK,
    answer_format: Annotated[
        AnswerFormat, typer.Option("--format", help="How to print the answer.")
    ] = AnswerFormat.TEXT,
) -> None:
    """Say where a step's memory went, or plan it.

    `ampdoctor memory plan --help` tells how to ask what a training would need, per precision layout, before it is run.
    """
    if PLAN in context.meta:
        raise typer.Exit(_plan(context.meta[PLAN]))
    recorded = open_run(run)
    ledger = _chosen(recorded, step)
    if phase.value not in ledger.phases:
        raise AmpDoctorError(
            f"step {ledger.step} has no moment {phase.value!r}", hint=f"it has {', '.join(ledger.phases)}"
        )
    measured = [row for row in recorded.paces if row.kept_bytes is not None]
    answer = layouts(recorded, ledger), advice(recorded, ledger), measured
    to = console()
    if answer_format is AnswerFormat.JSON:
        to.file.write(report.document(ledger, *answer, str(run)))
    else:
        show(report.page(ledger, phase.value, *answer, str(run), to.width), to)


def _chosen(run: Run, step: int | None) -> Ledger:
    found = ledgers(run)
    if not found:
        raise AmpDoctorError(_why_not(run), hint="record more than four steps, of one process, without torch.compile")
    if step is not None and step not in found:
        raise AmpDoctorError(
            f"the memory of step {step} was not recorded",
            hint=f"that of {', '.join(f'step {s}' for s in list(found)[:8])} was",
        )
    return found[max(found) if step is None else step]


def _why_not(run: Run) -> str:
    """Return why there is nothing to show."""
    said = "this run has recorded no memory"
    if run.info.world_size > 1:
        return f"{said}: it is followed in trainings of a single process only"
    if 0 < len(run.steps) <= 4:
        return f"{said}: it has {len(run.steps)} steps, and memory is followed from the fifth on"
    return f"{said}: the model is compiled, or it was recorded with --no-prove or by an older version"


def _plan(arguments: Sequence[str]) -> int:
    """Hand over to the planning, which needs torch."""
    try:
        planning = importlib.import_module(_PLANNING)
    except ModuleNotFoundError as error:
        if error.name != _PLANNING:
            raise
        raise AmpDoctorError("this version plans no memory", hint="for a run folder called plan, give ./plan") from None
    parser = _Parser(prog="ampdoctor memory plan", description=planning.__doc__)
    planning.add_plan_arguments(parser)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as done:  # it has printed its help
        return done.code if isinstance(done.code, int) else 0
    return int(planning.plan_command(options))
