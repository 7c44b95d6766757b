"""The process that one measurement runs in: `python -m benchmarks.overhead.worker PLAN RESULT`, both JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.overhead.measure import Plan, measured


def main() -> None:
    """Measure what the first argument says, and write what was found to the file that the second names."""
    result = measured(Plan(**json.loads(sys.argv[1])))
    Path(sys.argv[2]).write_text(json.dumps(asdict(result)), encoding="utf-8")


if __name__ == "__main__":
    main()
