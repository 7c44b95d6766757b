"""The subcommands put together, and the one boundary at which every error becomes a line and an exit code."""

from __future__ import annotations

import contextlib
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampdoctor import __version__
from ampdoctor.cli import (
    attach,
    baseline,
    check,
    compare,
    demo,
    diagnose,
    explain,
    export,
    formats,
    memory,
    report,
    run,
    speed,
    view,
    whatif,
)
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report.terminal import console, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERNAL_ERROR = 3
"""Exit code for a defect of ours (DESIGN §8)."""

_INTERRUPTED = 130

app = typer.Typer(
    name="ampdoctor",
    help="Find out why mixed-precision PyTorch training fails, and what to change.",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.command(context_settings={"allow_interspersed_args": False})(run.run)
app.command()(attach.attach)
app.command()(diagnose.diagnose)
app.command()(check.check)
app.command()(baseline.baseline)
app.command()(compare.compare)
app.command()(whatif.whatif)
app.command()(speed.speed)
app.command(cls=memory.MemoryCommand)(memory.memory)
app.command()(view.view)
app.command()(report.report)
app.command()(export.export)
app.command()(explain.explain)
app.command()(formats.formats)
app.command()(demo.demo)


@dataclass
class Settings:
    """Options that stand before the subcommand."""

    debug: bool = False


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ampdoctor {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="AMPDOCTOR_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    context.obj.debug = debug


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; nothing but an exit of the interpreter is ever raised."""
    settings = Settings()
    _never_fail_to_encode()
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name="ampdoctor", standalone_mode=False, obj=settings)
    except typer.Abort:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where a defect of ours becomes a line
        if settings.debug:
            with contextlib.suppress(OSError, ValueError):
                traceback.print_exc()
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Print `error` as a line and a hint, and return the exit code that goes with it."""
    to = console(stderr=True)
    if isinstance(error, AmpDoctorError):
        tell(f"error: {error.message}", to, style="bold red", hint=error.hint)
        return error.exit_code
    usage: Any = error
    if hasattr(usage, "format_message"):  # a usage error of Typer, whose class has moved from release to release
        return _explain_usage(usage, to)
    tell(
        f"internal error: {type(error).__name__}: {error}",
        to,
        style="bold red",
        hint="this is a defect of ampdoctor: please report it with the output of `ampdoctor --debug ...`",
    )
    return INTERNAL_ERROR


def _explain_usage(error: Any, to: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
    else:
        path = context.command_path if context else "ampdoctor"
        tell(f"error: {error.format_message()}", to, style="bold red", hint=f"see `{path} --help`")
    return int(error.exit_code)


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
