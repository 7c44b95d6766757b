"""`ampdoctor run`: runs a script exactly as `python` would, recording it, and says at the end what was wrong."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor.cli.options import Budget, Every, Force, Out, Prove
from ampdoctor.cli.supervision import end_like, supervise
from ampdoctor.cli.target import command_line, stem
from ampdoctor.config import load_config
from ampdoctor.live import BESIDE_THE_TRAINING, LiveFindings, Watcher
from ampdoctor.record.launch import Recording, finish, start
from ampdoctor.report.terminal import console, show_finding, tell
from ampdoctor.session import OTHERS_S, conclude, discard, reason_of, run_place
from ampdoctor.trace.info import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ampdoctor.config import Config


def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="Script, or module with -m.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments: whatever follows SCRIPT.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as with python -m.")] = False,
    out: Out = None,
    every: Every = None,
    budget: Budget = 0.03,
    sample_above: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Draw a sample of tensors on the CPU with more than N elements; by default all are counted.",
        ),
    ] = None,
    prove: Prove = None,
    force: Force = False,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Print findings as they appear.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    strict: Annotated[bool, typer.Option("--strict", hidden=True)] = False,
) -> int:
    """Run a training script and say what is wrong.

    The script runs as under python, unchanged, and everything after SCRIPT belongs to it. ampdoctor prints to stderr
    only, and exits as the script did.
    """
    config = load_config(Path())
    command = command_line(script, arguments or [], module=module)
    folder, seat = run_place(script if module else stem(script), out, force=force)
    speaks = seat is None or seat.leads
    quiet = quiet or not speaks
    to = console(stderr=True)
    if not quiet:
        tell(f"recording to {folder}", to, style="dim")
    recording = Recording(
        out=folder, every=every, budget=budget, sample_above=sample_above, prove=prove, strict=strict,
        lead=None if seat is None else speaks,
    )  # fmt: skip
    returncode = _record(command, recording, config if live and not quiet else None, to)
    if seat is not None:
        seat.leave_in_order(OTHERS_S)
    if speaks:
        _tell_outcome(folder, returncode, to, quiet=quiet, debug=context.obj.debug)
    return end_like(returncode)


def _record(command: Sequence[str], recording: Recording, config: Config | None, to: Console) -> int:
    """Run `command` to its end, with live findings where there is a `config`, and return its return code."""
    live = None
    if config is not None:
        watcher = Watcher(recording.out, config)
        live = LiveFindings(watcher, lambda finding: show_finding(finding, to), BESIDE_THE_TRAINING)
        live.start()
    try:
        return supervise(lambda: start(command, recording))
    finally:
        if live is not None:
            live.stop()


def _tell_outcome(folder: Path, returncode: int, to: Console, *, quiet: bool, debug: bool) -> None:
    """Complete the run and print its diagnosis; the exit code is the script's, whatever happens here."""
    try:
        if _recorded(folder, returncode, to) and not quiet:
            conclude(folder, to)
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001 - the diagnosis must not change how the script ended
        if debug:
            with contextlib.suppress(OSError, ValueError):
                traceback.print_exc()
        hint = f"try `ampdoctor diagnose {folder}`"
        tell(f"error: no diagnosis: {reason_of(error)}", to, style="bold red", hint=hint)


def _recorded(folder: Path, returncode: int, to: Console) -> bool:
    """Complete run.json; where there is none, say so and leave no empty folder behind."""
    if (folder / FILE_NAME).is_file():
        with contextlib.suppress(OSError):  # a full disk: what was recorded can be diagnosed all the same
            finish(folder, returncode)
        return True
    discard(folder)
    tell(
        "nothing was recorded: torch was not imported, nothing was trained, or the recorder could not start "
        "(then it says so above)",
        to,
        hint="if it trains in another interpreter, record from inside: with ampdoctor.watch(model): ..."
        if returncode == 0 else "",
    )  # fmt: skip
    return False
