"""What every report format makes of the sample runs: the files of tests/golden/outputs, which `make bless` writes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from ampdoctor.engine import diagnose
from ampdoctor.gate import check
from ampdoctor.gate.baseline import Baseline, baseline_of
from ampdoctor.gate.difference import difference_of
from ampdoctor.gate.policy import Policy, parse_limit
from ampdoctor.report import difference, known_formats, known_gate_formats
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.trace.run import Run

OUTPUTS = Path(__file__).resolve().parent.parent / "tests" / "golden" / "outputs"

GOOD = "bert_fp16_scaled"
"""The run that all are compared with."""

POLICY = Policy(limits=(parse_limit("flushed=1%"), parse_limit("skipped=10%")))

ENDINGS = {"text": "txt", "markdown": "md", "github": "log", "junit": "xml", "sarif": "sarif.json"}


def judged(folder: Path) -> tuple[Run, Diagnosis]:
    """Return the sample in `folder` and its diagnosis, the same wherever it lies."""
    run = open_run(folder)
    return run, replace(diagnose(run), run=folder.name)


def good_baseline(samples: Path) -> Baseline:
    """Return the baseline of the good sample."""
    return baseline_of([judged(samples / GOOD)])


def outputs(folder: Path) -> Iterator[tuple[str, str]]:
    """Return what is printed of the sample in `folder`, by file name."""
    found, good = judged(folder), judged(folder.parent / GOOD)
    with patch.dict(os.environ):
        os.environ.pop("GITHUB_WORKSPACE", None)
        for name, render in known_formats().items():
            if name != "json":  # which is expected.json
                yield f"diagnose.{ENDINGS.get(name, name)}", render(found[1])
        result = check(*found, POLICY, baseline_of([good]))
        for name, render_gate in known_gate_formats().items():
            yield f"check.{ENDINGS.get(name, name)}", render_gate(result)
    changed = difference_of(good, found)
    yield "compare.txt", difference.page(changed).plain()
    yield "compare.md", difference.markdown(changed)
    yield "compare.json", difference.document(changed)


def write(folder: Path) -> None:
    """Accept what is printed of the sample in `folder`."""
    to = OUTPUTS / folder.name
    to.mkdir(parents=True, exist_ok=True)
    for old in to.iterdir():
        old.unlink()
    for name, text in outputs(folder):
        (to / name).write_text(text, encoding="utf-8", newline="\n")
