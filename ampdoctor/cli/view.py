"""`ampdoctor view`: the dashboard."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ampdoctor.config import load_config
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report.terminal import console, tell

MADE_OF = ("dash", "dash_ag_grid", "dash_mantine_components", "plotly", "waitress")
"""What the dashboard is made of, and a training environment need not have."""


def view(
    runs: Annotated[Path, typer.Argument(metavar="RUN_OR_FOLDER", help="A run, or a folder of runs.")] = Path(
        "ampdoctor-runs"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for one that is free.")] = 8050,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to serve on; any but this machine's own needs --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="AMPDOCTOR_TOKEN", help="Secret that every visitor must bring.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language: en or zh; by default the browser's.")] = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")] = False,
) -> None:
    """Browse runs in a dashboard, also while they go on."""
    dashboard = part("serve")
    how = dashboard.Serving(host=host, port=port, token=token, lang=lang, browse=not no_open)
    to = console(stderr=True)
    try:
        dashboard.serve(runs, how, lambda address: tell(f"the dashboard is at {address}", to), load_config(Path()))
    except KeyboardInterrupt:
        tell("the dashboard has been stopped", to)


def part(name: str) -> Any:
    """Return a module of the dashboard.

    Raises:
        AmpDoctorError: what it is made of is not installed.
    """
    absent = [module for module in MADE_OF if find_spec(module) is None]
    if absent:
        raise AmpDoctorError(f"the dashboard needs {', '.join(absent)}", hint="pip install 'ampdoctor[dashboard]'")
    # By name, so that the package itself imports neither the dashboard nor dash.
    return import_module(f"ampdoctor_dashboard.{name}")
