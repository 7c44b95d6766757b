"""The command `ampdoctor`: one subcommand per file, and one place where errors become exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with `arguments` (those of the process where left out) and exit."""
    import sys
    from importlib import import_module

    sys.exit(import_module("ampdoctor.cli.app").invoke(arguments))
