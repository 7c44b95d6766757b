"""Runs at the start of a Python process that `ampdoctor run` launched; see `ampdoctor.record.inject`.

Python imports the first `sitecustomize` on its path. This one takes itself off the path, makes the recorder start when
torch is imported, and then gives way to the `sitecustomize` that it hid. It must never keep the script from running.
"""

import sys
from pathlib import Path


def _hand_over() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    try:
        from ampdoctor.record.inject import install

        install()
    except Exception as error:  # noqa: BLE001 - the script comes first
        print(f"ampdoctor: not recording: {error}", file=sys.stderr)  # noqa: T201
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_hand_over()
