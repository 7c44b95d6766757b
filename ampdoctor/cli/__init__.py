"""The command `ampdoctor`: one subcommand per file, and one place where errors become exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with `arguments` (those of the process where left out) and exit.

    As the command of the process it leaves at once: to take apart, object by object, what was made of a long run takes
    the interpreter more than half a second, and everything that needs an end has had it by then.
    """
    import os
    import sys
    from importlib import import_module

    code = import_module("ampdoctor.cli.app").invoke(arguments)
    _let_go_of_dead_streams()
    if arguments is None:
        os._exit(code)
    sys.exit(code)


def _let_go_of_dead_streams() -> None:
    """Leave the interpreter nothing to flush into a stream that fails, for which it would exit with 120."""
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
