"""Runs at the start of a Python process that `ampdoctor run` launched; see `ampdoctor.record.inject`.

Python imports the first `sitecustomize` on its path. This one takes itself off the path, makes the recorder start when
torch is imported, and then gives way to the `sitecustomize` that it hid. It must never keep the script from running.
"""

import importlib
import sys
from pathlib import Path


def _hand_over() -> None:
    here = Path(__file__).resolve().parent
    path = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    # The ampdoctor that launched us may lie where this process would not look; its package, once
    # imported, finds its own modules without the path.
    sys.path[:] = [*path, str(here.parents[2])]
    try:
        from ampdoctor.record.inject import install

        install()
    except Exception as error:  # noqa: BLE001 - the script comes first
        print(f"ampdoctor: not recording: {error}", file=sys.stderr)  # noqa: T201
    sys.path[:] = path
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_hand_over()
