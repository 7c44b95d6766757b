"""Options that `run` and `attach` have in common: where a recording goes, and how much it looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the run; a fresh one by default.")]
Every = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Examine every Nth step; by default as the budget allows.")
]
Budget = Annotated[
    float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="Largest share of the time for examinations.")
]
Prove = Annotated[
    bool | None,
    typer.Option(
        "--prove/--no-prove",
        help="Execute examined steps in other formats and loss scales as well: all of them, or none. "
        "By default one early, and one at each onset of trouble.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.")]
